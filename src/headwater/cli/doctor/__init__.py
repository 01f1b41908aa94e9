"""``headwater doctor``: what is wrong with this machine or this home, and how to mend it.

``doctor_command.py`` runs the checks of ``machine_checks.py`` and ``home_checks.py``; ``findings.py`` is one result.
Read first: ``doctor_command.py``.
"""
