"""The verbs on patterns: ``headwater pattern test``.

What lives here: one module. Patterns themselves are in ``headwater/patterns``; views with patterns are views, and
``headwater view`` is about them.
"""
