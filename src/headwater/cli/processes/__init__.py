"""``headwater claim``, ``headwater process``, ``headwater service``: what is decided over several aggregates.

Each noun has a module; ``request_words.py`` reads requests as they are written on a command line.
"""
