"""Routes: the HTTP interface, one module for each noun.

Each module is thin: it checks the scope, reads the request, calls the log or the serving store through
``server_state.py``, and answers (``http/answers.py``).
Read first: ``topic_routes.py``, ``view_routes.py``.
"""
