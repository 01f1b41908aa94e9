"""State expiry: the rows of a state that no later row can need.

What it is: ``leaving``, the rows that expire from a timed stage: by their own time, by the end of their session, or
because a later version of their key counts already; and ``before``, the rows of any state whose time is past.
Invariants: expired rows are consolidated and have the weight that takes them away. Rows of one session expire
together. A key's last version stays, a tombstone too: without it a version that comes late would seem to be the last.
Not here: the limit (``progress.py``); taking the rows away (``timed_operators.py``).
Read next: ``timed_operators.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.log.schema.row_identity import row_identities
from headwater.views import thresholds
from headwater.views.compiler.frontend.as_of import APPENDED, OFFSET
from headwater.views.compiler.plan import Sessions, Superseded, TimedStage
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import consolidate, negate, select
from headwater.views.state.delta import Delta
from headwater.views.state.state_trace import StateTrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def leaving(own: StateTrace, stage: TimedStage, limit_us: int, sessions: ViewSessions) -> Delta:
    """The rows of a timed stage's state that leave, to be taken away."""
    rule = stage.leaving
    if rule is None:
        return before(own, stage.time, limit_us, sessions)
    if own.rows <= thresholds.SETTLED_ROWS_MAX:
        content = own.content()
        return Delta.local(negate(content.filter(pa.array(_here(content, rule, stage.time, limit_us)))))
    found = _there(consolidate(own.frame(sessions.large)), rule, stage.time, limit_us)
    return sessions.write(negate(select(found, own.schema.names)), own.schema)


def before(own: StateTrace, column: str, limit_us: int, sessions: ViewSessions) -> Delta:
    """The rows of a state whose time is before a limit, to be taken away."""
    if own.rows <= thresholds.SETTLED_ROWS_MAX:
        content = own.content()
        old = pc.less(microseconds(content.column(column)), limit_us).fill_null(False)
        return Delta.local(negate(content.filter(old)))
    frame = own.frame(sessions.large).where(f"CAST({quoted(column)} AS TIMESTAMP) < timestamp_micros({limit_us})")
    return sessions.write(negate(consolidate(frame)), own.schema)


# In this process


def _here(content: pa.Table, rule: Sessions | Superseded, time: str, limit_us: int) -> np.ndarray:
    """Which rows leave, as a mask."""
    if not content.num_rows:
        return np.zeros(0, bool)
    times = microseconds(content.column(time))
    if isinstance(rule, Superseded):
        moments = pc.coalesce(times, microseconds(content.column(APPENDED))).to_numpy()
        return superseded(_codes(content, rule.keys), moments, content.column(OFFSET).to_numpy(), limit_us)
    known = pc.is_valid(times).to_numpy()  # a row without a time is in no session, and in no window
    mask = np.ones(content.num_rows, bool)
    mask[known] = over(_codes(content, rule.keys)[known], times.drop_null().to_numpy(), rule.gap_us, limit_us)
    return mask


def _codes(content: pa.Table, keys: Sequence[str]) -> np.ndarray:
    """A number for each key."""
    if not keys:
        return np.zeros(content.num_rows, np.int64)
    numbers: dict[bytes, int] = {}
    identities = row_identities(content.select(list(keys)))
    return np.array([numbers.setdefault(identity, len(numbers)) for identity in identities], np.int64)


def over(codes: np.ndarray, times: np.ndarray, gap_us: int, limit_us: int) -> np.ndarray:
    """Which rows are of sessions that ended at or before a limit.

    >>> codes, times = np.array([0, 0, 0, 1]), np.array([10, 30, 14, 24])
    >>> over(codes, times, 5, 29).tolist()  # 10 and 14 are one session, which ends at 19
    [True, False, True, True]
    """
    if not len(times):
        return np.zeros(0, bool)
    order = np.lexsort((times, codes))
    sorted_codes, sorted_times = codes[order], times[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (sorted_codes[1:] != sorted_codes[:-1]) | (sorted_times[1:] - sorted_times[:-1] > gap_us)
    session = np.cumsum(begins) - 1
    last = np.append(np.flatnonzero(begins)[1:], len(order)) - 1
    found = np.empty(len(order), bool)
    found[order] = (sorted_times[last] + gap_us <= limit_us)[session]
    return found


def superseded(codes: np.ndarray, moments: np.ndarray, offsets: np.ndarray, limit_us: int) -> np.ndarray:
    """Which versions are followed by one that counts from a limit or before.

    >>> superseded(np.array([0, 0, 1]), np.array([5, 9, 1]), np.array([0, 1, 2]), 9).tolist()
    [True, False, False]
    """
    order = np.lexsort((offsets, moments, codes))
    sorted_codes, sorted_moments = codes[order], moments[order]
    found = np.zeros(len(order), bool)
    found[order[:-1]] = (sorted_codes[1:] == sorted_codes[:-1]) & (sorted_moments[1:] <= limit_us)
    return found


# With Spark


def _there(frame: DataFrame, rule: Sessions | Superseded, time: str, limit_us: int) -> DataFrame:
    """The same rows, of a state that is too large for one process."""
    keys = ", ".join(map(quoted, rule.keys)) or "1"
    moment = f"unix_micros(CAST({quoted(time)} AS TIMESTAMP))"
    if isinstance(rule, Superseded):
        moment = f"coalesce({moment}, unix_micros(`{APPENDED}`))"
        following = f"lead({moment}) OVER (PARTITION BY {keys} ORDER BY {moment}, `{OFFSET}`)"
        return frame.selectExpr("*", f"{following} AS following__").where(f"following__ <= {limit_us}")
    by_time = f"PARTITION BY {keys} ORDER BY moment__"
    return (
        frame.selectExpr("*", f"{moment} AS moment__")
        .selectExpr("*", f"moment__ - lag(moment__) OVER ({by_time}) <= {rule.gap_us} AS goes_on__")
        .selectExpr("*", f"count_if(NOT coalesce(goes_on__, false)) OVER ({by_time}) AS session__")
        .selectExpr("*", f"max(moment__) OVER (PARTITION BY {keys}, session__) AS last__")
        .where(f"moment__ IS NULL OR last__ + {rule.gap_us} <= {limit_us}")
    )


def microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of times as whole numbers.

    >>> import datetime as dt
    >>> microseconds(pa.chunked_array([pa.array([dt.date(1970, 1, 2)])])).to_pylist()
    [86400000000]
    """
    if kinds.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    return column.cast(pa.int64())
