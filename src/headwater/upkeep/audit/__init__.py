"""Audit: are the rows of the log what they were when they were sealed, and who can be shown that they are.

Read first: ``log_audit.py``, which compares everything; then ``row_proof.py``, proofs for somebody without the home.
The hashes and checkpoints themselves: ``log/proof/``.
"""
