"""Commands for the care of whole homes: ``headwater backup`` and ``headwater restore``.

The work is in ``headwater/upkeep``.
Read first: ``backup_commands.py``.
"""
