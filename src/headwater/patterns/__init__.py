"""Row patterns: SQL's MATCH_RECOGNIZE, without an engine.

``clause/`` finds and reads the clause in a text; ``pattern_program.py`` splits its ``expressions/`` between Spark and
the matcher; ``search/`` runs the pattern over sorted rows; ``match_result.py`` is the answer. No Spark: who holds the
rows computes the row columns before and the measures after. Read ``docs/patterns.md`` first, then
``pattern_program.py``.
"""

from __future__ import annotations

from headwater.patterns.clause.match_clause import MatchClause, find_clauses
from headwater.patterns.match_result import EMPTY, MATCHED, TIMED_OUT, UNMATCHED, MatchResult
from headwater.patterns.pattern_program import PatternProgram, compile_pattern

__all__ = [
    "EMPTY",
    "MATCHED",
    "TIMED_OUT",
    "UNMATCHED",
    "MatchClause",
    "MatchResult",
    "PatternProgram",
    "compile_pattern",
    "find_clauses",
]
