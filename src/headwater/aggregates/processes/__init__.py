"""Processes: requests that take several steps over several aggregates, each step exactly once.

``process_step.py`` is what a process function yields; ``process_state.py`` the events of one request;
``process_run.py`` takes one request a step further; ``process.py`` is what users hold; ``process_runner.py`` runs them
in the background. ``constraint.py`` follows a view of violations. The chapter is ``docs/processes.md``.
"""
