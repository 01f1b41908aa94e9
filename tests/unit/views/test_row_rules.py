"""Row rules: what a reader sees of rows that are told apart, and what is closed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import Forbidden, InvalidDeclaration
from headwater.views.privacy.personal_data import SEES_ALL, PrivacyRights
from headwater.views.privacy.row_rules import RowsShown
from headwater.views.serving.change_feed import named

ACME = PrivacyRights(claims=frozenset({("tenant", "acme"), ("other", "x")}))


@pytest.fixture
def app(tmp_path):
    with hw.App("shop", home=tmp_path / "home") as app:
        app.table("orders", "id BIGINT, tenant STRING, cents DOUBLE", key="id", rows_by={"tenant": "tenant"})
        app.table("prices", "id BIGINT, cents BIGINT", key="id")
        yield app


@pytest.mark.parametrize(
    ("sql", "more", "rule"),
    [
        ("SELECT * FROM orders", {}, "closed"),
        ("SELECT count(*) AS n FROM prices WHERE id IN (SELECT id FROM orders)", {}, "closed"),
        ("SELECT * FROM orders", {"rows_by": {"tenant": "team"}}, (("tenant", "team"),)),
        ("SELECT count(*) AS n FROM orders", {"rows_by": {}}, None),
        ("SELECT * FROM prices", {}, None),
    ],
)
def test_a_view_over_rows_that_are_told_apart_says_so_or_is_closed(app, sql, more, rule):
    app.view("over", sql, **more)
    app.view("behind", "SELECT * FROM over")

    found, behind = app.row_rules.of("over"), app.row_rules.of("behind")

    assert (found and ("closed" if found.closed else found.columns)) == rule
    assert (behind is None) == (rule is None)
    assert behind is None or behind.closed is not None


def test_what_is_made_of_such_rows_beside_views_is_closed(app):
    app.view("drops", "SELECT * FROM prices")
    app.view("open", "SELECT * FROM orders", rows_by={"tenant": "tenant"})
    app.sink("open", hw.sinks.Topic("copies"))
    app.sink("drops", hw.sinks.Topic("plain"))

    closed = {name: app.row_rules.of(name) for name in ("copies", "plain", "orders.group.dead", "open.late.orders")}

    assert {name for name, rule in closed.items() if rule is not None and rule.closed} == closed.keys() - {"plain"}


def test_who_sees_which_rows(app):
    rules = app.row_rules

    assert rules.shown("orders", SEES_ALL) is None
    assert rules.shown("prices", PrivacyRights()) is None
    assert rules.shown("Orders", ACME).values == (("tenant", ("acme",)),)
    with pytest.raises(Forbidden, match='rows of "orders" are shown by the claim "tenant", which this key has not'):
        rules.shown("orders", PrivacyRights(everything=True, claims=frozenset({("Tenant", "acme")})))


def test_a_declaration_is_kept_with_the_topic_and_taken_away_by_an_empty_one(tmp_path):
    with hw.Log(tmp_path / "home") as log:
        log.topic("orders", "id BIGINT, tenant STRING", rows_by={"tenant": "tenant"})
        log.topic("orders", "id BIGINT, tenant STRING")
    with hw.Log(tmp_path / "home") as log:
        kept = log.get_topic("orders").settings.rows_by
        log.topic("orders", "id BIGINT, tenant STRING", rows_by={})
        assert (kept, log.get_topic("orders").settings.rows_by) == ({"tenant": "tenant"}, {})


@pytest.mark.parametrize(
    ("rows_by", "message"),
    [
        ({"tenants": "tenant"}, 'rows_by names "tenants", which is not a column'),
        ({"cents": "tenant"}, 'rows_by names "cents", which is DOUBLE'),
        ({"tenant": 7}, "rows_by cannot have 'tenant': 7"),
        ({"tenant": "a b"}, "rows_by cannot have 'tenant': 'a b'"),
        ("tenant", "rows_by cannot be 'tenant'"),
    ],
)
def test_a_wrong_declaration_is_refused(app, rows_by, message):
    with pytest.raises(InvalidDeclaration) as refused:
        app.topic("sales", "tenant STRING, cents DOUBLE", rows_by=rows_by)

    assert refused.value.message == message
    assert app.log.find_topic("sales") is None


def test_a_view_names_a_column_that_it_has(app):
    with pytest.raises(InvalidDeclaration, match='rows_by names "tenants", which is not a column'):
        app.view("over", "SELECT * FROM orders", rows_by={"tenants": "tenant"})


def test_rows_that_cannot_be_compared_are_refused_when_they_are_read():
    for column, kind in (("tenant", pa.float64()), ("team", pa.string())):
        with pytest.raises(Forbidden, match="tenant"):
            RowsShown("open", (("tenant", ("1",)),)).table(pa.table({column: pa.array([], kind)}))


tenants = st.sampled_from(["a", "b", None])
contents = st.dictionaries(st.integers(0, 6), st.tuples(tenants, st.integers(0, 1)), max_size=7)


@settings(deadline=None, max_examples=60)
@given(before=contents, after=contents, keyed=st.booleans())
def test_the_changes_of_a_reader_lead_from_its_rows_to_its_rows(before, after, keyed):
    """Oracle: the rows before and after, of this tenant, by plain Python."""
    weighted = [(-1, each) for each in before.items()] + [(1, each) for each in after.items()]
    changes = pa.table(
        {
            "id": pa.array([key for _, (key, _) in weighted], pa.int64()),
            "tenant": pa.array([row[0] for _, (_, row) in weighted], pa.string()),
            "n": pa.array([row[1] for _, (_, row) in weighted], pa.int64()),
            "_weight": pa.array([weight for weight, _ in weighted], pa.int64()),
        }
    )
    told = named(changes, tick=1, committed_us=0, key=["id"] if keyed else [])

    seen = RowsShown("open", (("tenant", ("a",)),)).table(told).to_pylist()

    mine = {key: row for key, row in before.items() if row[0] == "a"}
    for change in seen:
        key, row, kind = change["id"], (change["tenant"], change["n"]), change["_change_type"]
        assert row[0] == "a"
        if kind in ("delete", "update_preimage"):
            assert mine.pop(key) == row
        else:
            assert key not in mine
            mine[key] = row
        # an update is told as one where both of its halves are seen, and only there
        both = before.get(key, (None,))[0] == after.get(key, (None,))[0] == "a"
        assert kind.startswith("update") == (keyed and both)
    assert mine == {key: row for key, row in after.items() if row[0] == "a"}
