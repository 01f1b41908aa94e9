"""Erasure of a person: every place that holds something of them, one after the other, with a certificate.

Read first: ``person_erasure.py``, the order of the places; then ``erasure_certificate.py``, what it gives.
``backup_erasure.py`` rewrites backups, ``erased_places.py`` wherever they are; ``residue_scan.py`` looks for what is
left. Log and views do their part in ``log/erasure/`` and ``views/lifecycle/erasure_rebuild.py``.
"""
