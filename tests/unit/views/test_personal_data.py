"""Personal data of views: what is carried on from topics, and what takes a mark away."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration
from headwater.views.privacy.personal_data import PrivacyRights

NOBODY = PrivacyRights()


@pytest.fixture
def app(tmp_path):
    with hw.App("shop", home=tmp_path / "home") as app:
        declared(app)
        yield app


def declared(app: hw.App) -> None:
    """Users with personal columns, and orders."""
    app.table(
        "users",
        "id BIGINT, email STRING, Name STRING, country STRING, address STRUCT<street: STRING, city: STRING>",
        key="id",
        privacy={
            "id": hw.Personal("user_id"),
            "email": hw.Personal("user_id", by="id", purpose="billing", mask="hash"),
            "Name": hw.Personal("user_id", by="id", mask="redact"),
            "address": hw.Personal("user_id", by="id", purpose="shipping", mask="null"),
        },
    )
    app.table(
        "orders",
        "id BIGINT, user_id BIGINT, mail STRING, amount DOUBLE",
        key="id",
        privacy={"user_id": hw.Personal("user_id")},
    )


# The query; the masks of its columns; the columns that are personal and have no mask.
QUERIES = {
    "copied": ("SELECT email AS e, Name FROM users", {"e": "hash", "Name": "redact"}, []),
    "star": ("SELECT * FROM users", {"email": "hash", "Name": "redact", "address": "null"}, ["id"]),
    "computed": ("SELECT upper(email) || country AS e, country FROM users", {"e": "hash"}, []),
    "two": ("SELECT concat(email, Name) AS e FROM users", {"e": "redact"}, []),
    "field": ("SELECT address.city AS city FROM users", {"city": "null"}, []),
    "case": ("SELECT CASE WHEN email LIKE 'a%' THEN 1 ELSE 0 END AS a FROM users", {"a": "hash"}, []),
    "filtered": ("SELECT country FROM users WHERE email LIKE 'a%'", {}, []),
    "subquery": ("SELECT t.e FROM (SELECT email AS e FROM users) t", {"e": "hash"}, []),
    "with": ("WITH t AS (SELECT email AS e FROM users) SELECT e AS f FROM t", {"f": "hash"}, []),
    "union": ("SELECT country AS x FROM users UNION ALL SELECT Name FROM users", {"x": "redact"}, []),
    "maximum": ("SELECT country, max(Name) AS last FROM users GROUP BY country", {"last": "redact"}, []),
    "counted": ("SELECT country, count(*) AS n FROM users GROUP BY country", {}, ["n"]),
    "counted values": ("SELECT count(email) AS n FROM users", {"n": "hash"}, []),
    "summed": ("SELECT o.id, sum(o.amount) AS s FROM orders o GROUP BY o.id", {}, ["s"]),
    "ranked": (
        "SELECT country, row_number() OVER (PARTITION BY country ORDER BY Name, id) AS r FROM users",
        {"r": "redact"},
        [],
    ),
    "equal": ("SELECT o.mail, o.amount FROM orders o JOIN users u ON o.mail = u.email", {"mail": "hash"}, []),
    "equal later": (
        "SELECT a.mail FROM orders a JOIN orders b ON a.mail = b.mail JOIN users u ON u.email = b.mail",
        {"mail": "hash"},
        [],
    ),
    "joined": ("SELECT o.amount, u.country FROM orders o JOIN users u ON o.user_id = u.id", {}, []),
    "asked": ("SELECT o.id, o.mail IN (SELECT email FROM users) AS known FROM orders o", {"known": "hash"}, []),
    "exists": (
        "SELECT o.id, EXISTS (SELECT 1 FROM users u WHERE u.Name = o.mail) AS known FROM orders o",
        {"known": "redact"},
        [],
    ),
    "in one piece": (
        "SELECT country, count(*) AS n FROM users GROUP BY country GROUPING SETS ((country))",
        {"country": "null", "n": "null"},
        [],
    ),
    "named by Spark": ("SELECT upper(email), 1 FROM users", {"upper(email)": "hash"}, []),
    "exploded": ("SELECT t.w FROM users LATERAL VIEW explode(split(Name, ' ')) t AS w", {"w": "redact"}, []),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_column_of_a_view_is_as_personal_as_what_it_is_computed_from(app, name):
    sql, masks, unmasked = QUERIES[name]
    view = app.view("v", sql)

    found = app.personal_data.of("v")

    assert found.masks(view.columns, NOBODY) == {k: masks[k] for k in view.columns if k in masks}
    assert found.mark("a name that only Spark knows") is not None
    marked = {column for column in view.columns if found.mark(column) is not None}
    assert marked == {*masks, *unmasked} & set(view.columns)


def test_marks_go_through_views_over_views_and_come_from_what_topics_declare_now(app):
    app.view("first", "SELECT id, lower(email) AS mail, country FROM users")
    app.view("second", "SELECT mail AS m, country FROM first WHERE id > 3")

    before = app.personal_data.of("second").masks(["m", "country"], NOBODY)
    app.table(
        "users", app.get_table("users").schema, key="id", privacy={"country": hw.Personal("user_id", mask="null")}
    )

    assert before == {"m": "hash"}
    assert app.personal_data.of("second").masks(["m", "country"], NOBODY) == {"country": "null"}


def test_a_purpose_covers_the_columns_of_that_purpose_alone(app):
    app.view("both", "SELECT email, address.city AS city, concat(email, Name) AS who FROM users")

    found = app.personal_data.of("both").masks(["email", "city", "who"], PrivacyRights(purposes=frozenset({"billing"})))

    assert found == {"city": "null", "who": "redact"}


def test_a_view_by_function_is_personal_throughout_unless_it_says_otherwise(app):
    @app.view_function(inputs=["users"], privacy={"country": None, "initial": hw.Personal("user_id", mask="hash")})
    def initials(users):
        return users

    found = app.personal_data.of("initials")

    assert found.masks(["country", "initial", "other"], NOBODY) == {"initial": "hash", "other": "null"}


def test_what_a_view_says_of_its_columns_counts_in_place_of_its_lineage(app):
    app.view("v", "SELECT left(email, 1) AS initial, Name FROM users", privacy={"initial": None})
    app.view("w", "SELECT initial, Name FROM v")

    assert app.personal_data.of("w").masks(["initial", "Name"], NOBODY) == {"Name": "redact"}
    with pytest.raises(InvalidDeclaration, match='privacy names "inital", which is not a column'):
        app.view("x", "SELECT left(email, 1) AS initial FROM users", privacy={"inital": None})


def test_sums_over_enough_people_lose_their_mark_and_values_of_one_do_not(app):
    view = app.view(
        "ages",
        "SELECT country, count(email) AS n, avg(length(Name)) AS long, max(Name) AS last FROM users GROUP BY country",
        people_min=5,
    )

    found = app.personal_data.of("ages")

    assert view.declared.sql.endswith("GROUP BY country HAVING count(DISTINCT `users`.`id`) >= 5")
    assert [column for column in view.columns if found.mark(column) is not None] == ["last"]


@pytest.mark.parametrize(
    ("aggregate", "freed"),
    [
        ("sum(spent)", True),
        ("sum(DISTINCT spent) / count(*)", True),
        ("round(avg(coalesce(spent, 0) * 2 - CAST(spent AS INT)), 2)", True),
        ("CASE WHEN count(*) > 9 THEN sum(spent) END", True),
        ("count(DISTINCT lower(email))", True),
        ("sum(spent) FILTER (WHERE id = 7)", False),
        ("sum(spent) - sum(spent) FILTER (WHERE id <> 7)", False),
        ("sum(CASE WHEN id = 7 THEN spent END)", False),
        ("sum(CASE id WHEN 7 THEN spent ELSE 0 END)", False),
        ("sum(if(id = 7, spent, 0))", False),
        ("sum(spent * CAST(id = 7 AS INT))", False),
        ("sum(nullif(spent, id))", False),
        ("sum(decode(id, 7, spent))", False),
        ("sum(map(7, spent)[id])", False),
        ("count_if(id = 7 AND spent > 1)", False),
        ("count(CASE WHEN id = 7 THEN spent END)", False),
        ("count(nullif(id <> 7, true))", False),
    ],
)
def test_a_sum_that_picks_its_rows_by_a_condition_keeps_its_mark(app, aggregate, freed):
    app.table(
        "buyers",
        "id BIGINT, email STRING, spent BIGINT, country STRING",
        key="id",
        privacy={
            "id": hw.Personal("user_id", mask="hash"),
            "email": hw.Personal("user_id", by="id", mask="hash"),
            "spent": hw.Personal("user_id", by="id", mask="null"),
        },
    )
    app.view("v", f"SELECT country, {aggregate} AS found FROM buyers GROUP BY country", people_min=5)

    assert (app.personal_data.of("v").mark("found") is None) == freed
    assert bool(app.personal_data.of("v").masks(["found"], NOBODY)) != freed


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SELECT country FROM users", "needs one SELECT with GROUP BY"),
        ("SELECT count(*) AS n FROM (SELECT email FROM users) t", "needs topics, tables and views in FROM"),
        ("SELECT count(*) AS n FROM mails", "has personal columns and no user_id"),
        ("SELECT count(*) AS n FROM plain", "has no personal column"),
    ],
)
def test_a_view_whose_people_cannot_be_counted_is_refused(app, sql, sentence):
    app.view("mails", "SELECT email FROM users")
    app.topic("plain", "x INT")

    with pytest.raises(InvalidDeclaration, match=sentence):
        app.view("v", sql, people_min=5)


def test_copies_of_rows_are_as_personal_as_the_rows(app):
    app.topic("clicks", "user_id BIGINT, ip STRING", privacy={"ip": hw.Personal("user_id", mask="null")})
    app.view("seen", "SELECT ip FROM clicks")

    found = app.personal_data

    assert found.of("seen.late").masks(["ip", "user_id"], NOBODY) == {"ip": "null"}
    assert found.of("clicks.mailers.dead").masks(["row", "topic"], NOBODY) == {"row": "null"}
    assert found.of("some_inlet.dead").masks(["body", "code"], NOBODY) == {"body": "null"}
