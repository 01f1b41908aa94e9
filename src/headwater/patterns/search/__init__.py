"""The search for matches over sorted rows.

``automaton.py`` is the pattern, ``match_oracle.py`` knows where a match can end, ``match_starts.py`` where it can
begin; ``lockstep_search.py`` and ``row_search.py`` are the two searches, and ``row_matcher.py`` runs them.
Read ``row_matcher.py`` first.
"""
