"""The verbs on aggregates.

``aggregate_commands.py`` has all of them; ``argument_words.py`` reads the arguments of a command from words.
Read next: ``aggregate_commands.py``.
"""
