"""What SQL leaves open about a query's columns is known, and nothing else."""

from __future__ import annotations

import pytest

from headwater.views.compiler.algebra.nondeterminism import Nondeterminism, open_columns


@pytest.mark.parametrize(
    "expression",
    [
        "hll_sketch_agg(x)",
        "hll_sketch_estimate(hll_sketch_agg(x))",
        "kll_merge_agg_bigint(x)",
        "theta_union_agg(x)",
        "approx_percentile(x, 0.5)",
        "percentile_approx(x, 0.5)",
        "approx_top_k(x, 3)",
        "histogram_numeric(x, 3)",
        "first(x)",
        "any_value(x)",
        "max_by(x, y)",
        "mode(x)",
        "listagg(x)",
        "concat(collect_list(x), array(1))",
        "array_sort(collect_list(x), (a, b) -> 0)",
    ],
)
def test_an_aggregate_that_chooses_leaves_its_column_open(expression: str) -> None:
    assert open_columns(f"SELECT k, {expression} AS found FROM t GROUP BY k") == {"found": Nondeterminism.VALUE}


@pytest.mark.parametrize("expression", ["collect_list(x)", "collect_set(x) FILTER (WHERE x > 1)", "array_agg(x)"])
def test_of_a_list_only_the_order_is_open(expression: str) -> None:
    assert open_columns(f"SELECT k, {expression} AS found FROM t GROUP BY k") == {"found": Nondeterminism.BAG}


@pytest.mark.parametrize(
    "expression",
    [
        "sum(x)",
        "count(DISTINCT x)",
        "percentile(x, 0.5)",
        "median(x)",
        "approx_count_distinct(x)",
        "size(collect_set(x))",
        "sort_array(collect_list(x))",
        "array_max(collect_list(x))",
        "first_value(x) OVER (ORDER BY k)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
        "listagg(x) WITHIN GROUP (ORDER BY x)",
    ],
)
def test_what_rows_determine_is_not_open(expression: str) -> None:
    assert open_columns(f"SELECT k, {expression} AS found FROM t") == {}


def test_what_is_open_inside_is_open_outside() -> None:
    inner = "SELECT window(at, '1 hour') AS w, first(x) AS f, collect_list(x) AS xs, count(*) AS n FROM t GROUP BY 1"

    assert open_columns(f"SELECT q.n + 1 AS n, q.f + 1 AS f, q.xs AS xs FROM ({inner}) AS q") == {
        "f": Nondeterminism.VALUE,
        "xs": Nondeterminism.BAG,
    }
    assert open_columns(f"WITH q AS ({inner}) SELECT * FROM q") == {"f": Nondeterminism.VALUE, "xs": Nondeterminism.BAG}
    assert open_columns(f"SELECT 1 AS a, 2 AS b UNION ALL SELECT q.n, q.f FROM ({inner}) AS q") == {
        "b": Nondeterminism.VALUE
    }
    assert (
        open_columns(f"VALUES (1, 2) UNION ALL SELECT q.n, q.f FROM ({inner}) AS q") == {}
    )  # its columns have no names
