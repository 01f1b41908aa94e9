"""The command line: ``headwater NOUN VERB``.

One module for each noun (``topic``, ``group``) and for each verb that stands alone (``check``, ``demo``). What they
share is how things are written (``output``), read (``inputs``), and said in human units (``quantities``).
Nothing in the package imports this folder. Read next: ``main.py``, then ``docs/cli.md``.
"""
