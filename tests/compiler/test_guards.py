"""A condition guards the expressions beside it: keys and filtered arguments are computed for rows that pass.

What it is: plans of queries with an expression that raises over rows which a condition keeps away.
Invariants: the condition stands where the expression is computed, whatever the stage.
Not here: what Spark answers to such queries (``tests/spark/trouble/constructs.sql``).
Read next: ``src/headwater/views/compiler/operators/keyed_stages.py``.
"""

from __future__ import annotations

import pytest

from headwater.views.compiler.plan import AccumulateStage, KeyedStage
from tests.compiler.shop import plan_of

SHARE = "CAST(100 / amount AS BIGINT)"
GUARDED = "CASE WHEN `amount` <> 0 THEN"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {SHARE} AS x FROM orders WHERE amount <> 0 EXCEPT SELECT id FROM users",
        f"SELECT order_id FROM orders WHERE amount <> 0 AND NOT EXISTS (SELECT 1 FROM users WHERE users.id = {SHARE})",
        f"SELECT o.order_id, u.id FROM orders o LEFT JOIN users u ON u.id = {SHARE} WHERE o.amount <> 0",
        f"SELECT o.x, u.id FROM (SELECT {SHARE} AS x FROM orders WHERE amount <> 0) o LEFT JOIN users u ON u.id = o.x",
        f"SELECT order_id, rank() OVER (PARTITION BY {SHARE} ORDER BY order_id) AS r FROM orders WHERE amount <> 0",
    ],
)
def test_a_key_is_computed_for_the_rows_that_pass(sql: str) -> None:
    (stage,) = [stage for stage in plan_of(sql).stages if isinstance(stage, KeyedStage)]

    over_orders = next(given for given in stage.inputs if given.leaf.relation == "orders")
    assert all(GUARDED in key for key in over_orders.keys)
    assert "`amount` <> 0" in stage.sql.split("JOIN")[0]


def test_a_key_that_is_a_column_needs_no_guard() -> None:
    sql = "SELECT user_id FROM orders WHERE amount <> 0 EXCEPT SELECT id FROM users"
    (stage,) = [stage for stage in plan_of(sql).stages if isinstance(stage, KeyedStage)]

    assert all(given.plain is not None for given in stage.inputs)


def test_what_filter_leaves_out_is_not_computed() -> None:
    (stage,) = plan_of("SELECT count(100 / amount) FILTER (WHERE amount <> 0) AS n FROM orders").stages

    assert isinstance(stage, AccumulateStage)
    assert "CASE WHEN _l0.`amount` <> 0 THEN" in stage.terms[0].sql
