"""Stage texts that carry the rows of their leaves: what is kept, what is taken apart, what is refused."""

from __future__ import annotations

import pytest

from headwater.views.provenance.carried_rows import NotCarried, carried


def test_an_outer_join_hands_up_the_rows_of_both_sides():
    found = carried("SELECT a.`x` AS `x`, b.`y` AS `y` FROM _l0 AS a LEFT JOIN _l1 AS b ON a.`x` = b.`x`")

    assert found.leaves == ("_l0", "_l1")
    assert "`a`.`_row` AS `_row_l0`, `b`.`_row` AS `_row_l1`" in found.sql
    assert "LEFT JOIN _l1 AS b ON a.`x` = b.`x`" in found.sql


def test_the_right_side_of_an_anti_join_and_of_except_gives_nothing():
    anti = carried(
        "SELECT t.`x` AS `x` FROM _l0 AS t LEFT ANTI JOIN (SELECT _l1.`x` AS `x` FROM _l1) AS u ON t.x = u.x"
    )
    other = carried("SELECT _l0.`x` AS `x` FROM _l0 EXCEPT SELECT _l1.`x` AS `x` FROM _l1")

    assert (anti.leaves, anti.absent) == (("_l0",), frozenset({"_l1"}))
    assert (other.leaves, other.absent) == (("_l0",), frozenset({"_l1"}))


def test_except_all_and_intersect_have_both_sides():
    for word in ("EXCEPT ALL", "INTERSECT", "UNION", "UNION ALL"):
        found = carried(f"SELECT _l0.`x` AS `x` FROM _l0 {word} SELECT _l1.`x` AS `x` FROM _l1")

        assert found.leaves == ("_l0", "_l1")
        assert "UNION ALL" in found.sql
        assert found.sql.count("NULL AS") == 2


def test_having_goes_with_its_group():
    found = carried(
        "SELECT t.`g` AS `g`, t.`n` AS `n` FROM (SELECT _l0.`g` AS `g`, count(*) AS `n` FROM _l0 "
        "GROUP BY _l0.`g`) AS t WHERE t.`n` > 1 AND t.`g` <> 'x'"
    )

    assert found.outputs == {"g"}
    assert "count" not in found.sql
    assert "`n`" not in found.sql
    assert "t.`g` <> 'x'" in found.sql


def test_a_session_stays_whole_beside_the_rows_of_its_groups_and_time():
    found = carried(
        "SELECT t.`g` AS `g`, t.`n` AS `n` FROM (SELECT session_window(_l0.`at`, '5 minutes') AS `s`, _l0.`g` AS `g`, "
        "count(*) AS `n` FROM _l0 GROUP BY session_window(_l0.`at`, '5 minutes'), _l0.`g`) AS t WHERE t.`n` > 1"
    )

    assert (found.leaves, found.outputs, found.sessions, found.grouped) == (("_l0",), {"g", "n"}, True, True)
    assert "t.`_row_session` AS `_row_session`" in found.sql.replace("`t`", "t")
    assert "t.`n` > 1" in found.sql
    with pytest.raises(NotCarried, match="by place"):
        carried("SELECT _l0.`g` AS `g`, count(*) AS `n` FROM _l0 GROUP BY 1, session_window(_l0.`at`, '5 minutes')")


def test_conditions_on_a_window_function_hold_for_the_row_and_not_for_its_partition():
    text = (
        "SELECT t.`id` AS `id`, t.`n` AS `n` FROM (SELECT _l0.`id` AS `id`, row_number() OVER (PARTITION BY _l0.`g` "
        "ORDER BY _l0.`id`) AS `n` FROM _l0 WHERE _l0.`id` > 0) AS t WHERE t.`n` = 2"
    )

    row, partition = carried(text), carried(text, partitions=True)

    assert (row.rank, row.parts, partition.parts) == ("n", ("_part0",), ("_part0",))
    assert "t.`n` = 2" in row.sql
    assert "t.`n` = 2" not in partition.sql
    assert "_l0.`id` > 0" in partition.sql


@pytest.mark.parametrize(
    "text",
    [
        "SELECT _l0.`x` AS `x` FROM _l0 WHERE EXISTS (SELECT 1 FROM _l1 WHERE _l1.`x` = _l0.`x`)",
        "SELECT _l0.`x` AS `x`, count(*) AS `n` FROM _l0 GROUP BY ROLLUP (_l0.`x`)",
        "SELECT _l0.`x` AS `x` FROM _l0 ORDER BY _l0.`x` LIMIT 3",
        "SELECT * FROM _l0 NATURAL JOIN _l1",
    ],
)
def test_what_is_not_known_is_refused(text):
    with pytest.raises(NotCarried):
        carried(text)
