"""Whether the driver lane may be used: tried out once for each Spark that starts.

What it is: ``lane_of``: the lane of a session's JVM, or None when it is switched off or failed its trial.
Invariants: the trial is a query with a join, an aggregate, a sort and a window over two sets of rows, whose right
answers are written here; then rows that must fail, and the first ones again. Any surprise means None, with the reason
in the log.
Not here: plans of views that the lane does not know (``plan_cache.py``).
Read next: ``driver_lane.py``.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import InvalidDeclaration
from headwater.views.spark.plans.arrow_leaves import ArrowLeaf, LeafRows
from headwater.views.spark.plans.driver_lane import DriverLane, LanePlan

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger("headwater.views")

VARIABLE = "HEADWATER_LANE"  # "auto", "on" (a failed trial is an error), "off"

TRIAL = """
SELECT country, total, row_number() OVER (ORDER BY total DESC) AS place FROM (
  SELECT /*+ SHUFFLE_HASH(u) */ u.country, sum(o.amount) AS total FROM _o o JOIN _u u ON o.user_id = u.id
  GROUP BY u.country
)"""

_guard = threading.Lock()
_lanes: weakref.WeakKeyDictionary[SparkContext, DriverLane | None] = weakref.WeakKeyDictionary()  # by Spark context


def wanted_lane() -> str:
    """What the environment says about the lane."""
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ("auto", "on", "off"):
        raise InvalidDeclaration(f'{VARIABLE} is "{wanted}"', hint='It is "auto", "on" or "off".')
    return wanted


def lane_of(small: SparkSession) -> DriverLane | None:
    """The lane of this session's JVM, tried out at the first call. ``small``: a session for queries of one task."""
    wanted = wanted_lane()
    if wanted == "off":
        return None
    context = small.sparkContext
    with _guard:
        if context not in _lanes:
            try:
                lane = DriverLane(small)
                _try(lane, small)
            except Exception as error:
                if wanted == "on":
                    raise
                logger.warning("small queries run as Spark jobs, since the driver lane failed its trial: %s", error)
                _lanes[context] = None
            else:
                _lanes[context] = lane
        return _lanes[context]


def interrupt_lane(spark: SparkSession) -> None:
    """Ask what runs in the lane of this JVM to end."""
    lane = _lanes.get(spark.sparkContext)
    if lane is not None:
        lane.interrupt()


def _try(lane: DriverLane, spark: SparkSession) -> None:
    orders = LeafRows(pa.table({"user_id": [1, 2, 3, 1], "amount": [5, 30, 7, 1]}))
    users = LeafRows(pa.table({"id": [1, 2, 3], "country": ["DE", "FR", "DE"]}))
    leaves = {name: ArrowLeaf(spark, rows.schema) for name, rows in (("_o", orders), ("_u", users))}
    for name, leaf in leaves.items():
        leaf.frame.createOrReplaceTempView(name)
    plan = LanePlan(lane, spark.sql(TRIAL), list(leaves.values()))
    for name in leaves:
        spark.catalog.dropTempView(name)
    first = [{"country": "FR", "total": 30, "place": 1}, {"country": "DE", "total": 13, "place": 2}]
    _expect(plan.run([orders, users]).to_pylist(), first)
    other = LeafRows(pa.table({"user_id": [3], "amount": [4]}))
    _expect(plan.run([other, users]).to_pylist(), [{"country": "DE", "total": 4, "place": 1}])
    try:
        plan.run([LeafRows(pa.table({"user_id": [1, 1], "amount": [2**62, 2**62]})), users])
    except Exception as error:
        if "OVERFLOW" not in str(error):
            raise
    else:
        raise AssertionError("an overflow was not noticed")
    _expect(plan.run([orders, users]).to_pylist(), first)


def _expect(found: object, right: object) -> None:
    if found != right:
        raise AssertionError(f"it gave {found}, not {right}")
