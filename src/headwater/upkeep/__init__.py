"""Care of whole logs: copies of one log in another, and how they are compared.

Read first: ``log_mirror.py``, which copies; then ``log_checksum.py``, by which a copy is verified.
What is here reads and writes any log by its contract (``log/contract.py``).
"""
