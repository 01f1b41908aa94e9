"""Lifecycle: views that are new, changed, rebuilt, verified, diagnosed or stalled.

``migration.py`` and ``rebuild.py`` compute views beside the live ones and swap them in; ``verification.py`` compares a
view with its query over the log; ``diagnosis.py`` finds the record that a view fails over, ``set_aside.py`` takes it
out; ``liveness.py`` and ``stalls.py`` tell whether an app advances.
Read first: ``rebuild.py``, ``verification.py``, ``diagnosis.py``.
"""
