"""Commands of the server: ``headwater serve`` and ``headwater key``.

One module each; the server itself is ``headwater/server``.
Read first: ``serve_command.py``.
"""
