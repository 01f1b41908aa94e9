"""Proof: that rows are in the log as they were when they were sealed, and that nothing before them was changed.

Read first: ``merkle_tree.py`` and ``merkle_proof.py``, which know nothing of the log.
"""
