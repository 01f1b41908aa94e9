"""Commands of views: ``headwater run``, ``plan``, ``verify``, ``query``, ``view …``.

One module for each verb or noun; each opens the app file, calls the library and prints.
Read first: ``run_command.py``.
"""
