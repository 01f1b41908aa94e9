"""The command line: ``headwater NOUN VERB``.

One module for each noun (``topic``, ``group``) and each verb without a noun (``check``, ``demo``); ``output.py``
prints, ``quantities.py`` parses human units.
Nothing in the package imports this folder. Read next: ``main.py``, then ``docs/cli.md``.
"""
