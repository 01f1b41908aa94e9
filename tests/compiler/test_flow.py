"""Terms, weights and lookups of what is linear and bilinear."""

from __future__ import annotations

from headwater.views.compiler.plan import FlowStage, LeafContent, StageKind
from tests.compiler.shop import kinds, only_stage


def flow(sql: str) -> FlowStage:
    stage = only_stage(sql)
    assert isinstance(stage, FlowStage)
    return stage


def test_a_join_has_a_term_for_each_side_with_after_before_the_change_and_before_behind_it() -> None:
    stage = flow("SELECT o.order_id, u.country FROM orders o JOIN users u ON o.user_id = u.id")

    contents = [[leaf.content for leaf in term.leaves] for term in stage.terms]

    assert stage.kind == StageKind.BILINEAR
    assert contents == [[LeafContent.CHANGES, LeafContent.BEFORE], [LeafContent.AFTER, LeafContent.CHANGES]]


def test_each_term_begins_with_its_changes_and_multiplies_the_weights() -> None:
    stage = flow("SELECT o.order_id, u.country FROM orders o JOIN users u ON o.user_id = u.id WHERE u.age > 3")

    second = stage.terms[1].sql.replace("`", "")

    assert second == (
        "SELECT _l2.order_id AS order_id, _l3.country AS country, _l2._weight * _l3._weight AS _weight "
        "FROM _l3 JOIN _l2 ON _l2.user_id = _l3.id WHERE _l3.age > 3"
    )


def test_lookups_lead_from_the_changes_along_the_equalities() -> None:
    stage = flow(
        "SELECT o.order_id, n.text FROM orders o, users u, notes n "
        "WHERE o.user_id = u.id AND n.user_id = u.id AND u.country = 'DE'"
    )

    first, last = stage.terms[0], stage.terms[2]

    lookups = {leaf.relation: leaf.lookup for leaf in first.leaves}
    assert lookups["orders"] is None
    assert lookups["users"] is not None
    assert (lookups["users"].columns, lookups["users"].source_columns) == (("id",), ("user_id",))
    assert lookups["notes"] is not None
    users_leaf = next(leaf for leaf in first.leaves if leaf.relation == "users")
    assert lookups["notes"].source == users_leaf.name
    assert [leaf.relation for leaf in last.leaves if leaf.lookup is None] == ["notes"]


def test_a_lookup_reaches_into_the_branches_of_a_union() -> None:
    stage = flow(
        "SELECT o.order_id, x.word FROM orders o JOIN "
        "(SELECT user_id AS who, page AS word FROM visits UNION ALL SELECT user_id, text FROM notes) x "
        "ON x.who = o.user_id"
    )

    found = {leaf.relation: leaf.lookup for leaf in stage.terms[0].leaves}

    assert found["visits"] is not None
    assert found["visits"].columns == ("user_id",)
    assert found["notes"] is not None


def test_columns_of_two_types_are_not_looked_up_by_one_another() -> None:
    stage = flow("SELECT o.order_id FROM orders o JOIN users u ON o.user_id = u.country")

    assert all(leaf.lookup is None for leaf in stage.leaves)


def test_only_the_branch_that_changed_is_in_a_term() -> None:
    stage = flow("SELECT id FROM users UNION ALL SELECT user_id FROM visits UNION ALL SELECT 7")

    assert [[leaf.relation for leaf in term.leaves] for term in stage.terms] == [["users"], ["visits"]]
    assert stage.kind == StageKind.LINEAR
    assert stage.constant is not None
    assert "7" in stage.constant


def test_a_term_is_zero_when_a_side_of_the_join_is_empty_and_no_branch_of_a_union_alone_is_a_side() -> None:
    stage = flow(
        "SELECT o.order_id FROM orders o JOIN (SELECT user_id AS who FROM visits "
        "UNION ALL SELECT n.user_id FROM notes n JOIN users u ON u.id = n.user_id) x ON x.who = o.user_id"
    )
    term = stage.terms[0]
    orders, visits, notes, users = (leaf.name for leaf in term.leaves)

    assert [term.is_zero({empty}) for empty in (orders, visits, notes, users)] == [True, False, False, False]
    assert not term.is_zero({notes, users})
    assert [term.is_zero({visits, empty}) for empty in (notes, users)] == [True, True]
    assert term.linear_in == {orders}
    assert stage.terms[1].is_zero({stage.terms[1].changes})


def test_constant_rows_of_a_union_are_a_side_of_the_join_by_themselves() -> None:
    stage = flow(
        "SELECT o.order_id FROM orders o JOIN (SELECT id AS who FROM users UNION ALL SELECT 7) x ON x.who = o.user_id"
    )
    orders, users = (leaf.name for leaf in stage.terms[0].leaves)

    assert not stage.terms[0].is_zero({users})
    assert stage.terms[0].is_zero({orders})


def test_derived_tables_and_with_queries_add_no_stages() -> None:
    assert kinds(
        "WITH big AS (SELECT * FROM orders WHERE amount > 10) "
        "SELECT b.order_id, u.c FROM big b JOIN (SELECT id, country AS c FROM users) u ON u.id = b.user_id"
    ) == ["bilinear"]


def test_explode_is_linear() -> None:
    stage = flow("SELECT order_id, explode(tags) AS tag FROM orders")

    assert stage.kind == StageKind.LINEAR
    assert "LATERAL VIEW explode" in stage.terms[0].sql


def test_what_all_alternatives_of_an_or_ask_for_joins() -> None:
    stage = flow(
        "SELECT o.order_id FROM orders o, users u "
        "WHERE (o.user_id = u.id AND u.age > 9) OR (o.user_id = u.id AND o.amount > 9)"
    )

    assert all(leaf.lookup is not None for leaf in stage.leaves if leaf.content != LeafContent.CHANGES)
