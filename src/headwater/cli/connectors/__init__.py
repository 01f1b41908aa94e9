"""Commands of connectors: ``headwater capture``, ``inlet``, ``sink``, ``sync``, ``attach``, ``search``.

One module for each noun.
Read first: ``capture_commands.py``, ``sync_command.py``.
"""
