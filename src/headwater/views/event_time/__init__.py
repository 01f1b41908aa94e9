"""Event time in views: late rows, final rows, and state that expires.

``progress.py`` is how far an app is, ``timing.py`` what a view declared, ``timed_operators.py`` the stages that judge
rows by time, ``late_rows.py`` counts and keeps late rows, ``state_expiry.py`` drops state that no row can need.
Read first: ``timing.py``, then ``timed_operators.py``.
"""
