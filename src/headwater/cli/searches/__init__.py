"""The verbs on stored searches: ``headwater searches list|put|remove|percolate``.

What lives here: one module. The searches themselves are in ``headwater/searches``; the full-text index of a search
sink is asked by ``headwater search`` (``cli/connectors/search_command.py``).
"""
