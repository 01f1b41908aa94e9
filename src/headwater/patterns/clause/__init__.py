"""The MATCH_RECOGNIZE clause as the user wrote it: found, read, checked.

``match_clause.py`` finds clauses and reads their sections, ``pattern_tree.py`` the pattern, ``clause_checks.py`` what
must fit together; ``pattern_scanner.py`` has the tokens and the error that underlines a place.
Expressions are texts here. Read ``match_clause.py`` first.
"""
