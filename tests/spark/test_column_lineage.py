"""Column lineage beside Spark: wherever a person's letters come out of a query, the column is marked."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.views.privacy.personal_data import PrivacyRights
from tests.unit.views.test_personal_data import declared

LETTER = "Ž"  # stands in every personal text, and nowhere else
QUERIES = {
    "aliases of outputs": "SELECT email AS a, a || '!' AS b, country FROM users",
    "names of columns": "SELECT x.p, x.q FROM (SELECT email, country FROM users) AS x(p, q)",
    "both sides": "SELECT l.country, r.Name AS n FROM users l FULL JOIN users r ON l.id = r.id + 1",
    "correlated": "SELECT o.id, (SELECT max(u.Name) FROM users u WHERE u.id = o.user_id) AS n FROM orders o",
    "lateral": "SELECT o.id, t.n FROM orders o, LATERAL (SELECT u.Name AS n FROM users u WHERE u.id = o.user_id) t",
    "collected": "SELECT country, array_sort(collect_set(struct(Name, id))) AS all FROM users GROUP BY country",
    "struct and back": "SELECT s.e, s.c FROM (SELECT struct(email AS e, country AS c) AS s FROM users)",
    "map": "SELECT map(country, Name)['DE'] AS n FROM users",
    "windowed": "SELECT country, lag(Name) OVER (PARTITION BY country ORDER BY id) AS before FROM users",
    "except": "SELECT Name AS x FROM users EXCEPT SELECT country FROM users",
    "first": "SELECT country, max_by(Name, id) AS n, min(id) AS i FROM users GROUP BY country",
    "having": "SELECT country FROM users GROUP BY country HAVING max(Name) > 'A'",
    "pivot": "SELECT * FROM (SELECT country, Name FROM users) PIVOT (max(Name) FOR country IN ('DE' AS de))",
    "values": "SELECT v.x, u.country FROM VALUES ('DE') AS v(x) JOIN users u ON u.country = v.x",
    "using": "SELECT id, Name, amount FROM users JOIN orders USING (id)",
    "natural": "SELECT * FROM users NATURAL JOIN (SELECT id, mail FROM orders)",
    "grouped by": "SELECT upper(Name) AS n, count(*) AS c FROM users GROUP BY ALL",
    "limit": "SELECT country, Name FROM users ORDER BY email LIMIT 2",
    "exploded pairs": "SELECT id, k, v FROM users LATERAL VIEW explode(map(country, Name)) t AS k, v",
    "in a list": "SELECT id, transform(array(country, Name), x -> upper(x)) AS xs FROM users",
}


@pytest.mark.usefixtures("spark")
def test_a_column_that_shows_personal_letters_is_marked(tmp_path: Path) -> None:
    wrong, unmarked = [], 0
    with hw.App("shop", home=tmp_path / "home") as app:
        declared(app)
        app.get_table("users").upsert(
            [
                {"id": id, "email": f"{LETTER}{id}", "Name": f"A{LETTER} {id}", "country": country, "address": address}
                for id, country in ((1, "DE"), (2, "FR"), (3, "DE"))
                for address in [{"street": LETTER, "city": LETTER}]
            ]
        )
        app.get_table("orders").upsert(
            [{"id": id, "user_id": id, "mail": f"{LETTER}{id}", "amount": 2.5} for id in (1, 2)]
        )
        contents = app._runtime.contents()
        for name, sql in QUERIES.items():
            app.view("v", sql)
            marks = app.personal_data.of("v")
            for column in contents.query(sql).to_pydict().items():
                mark = marks.mark(column[0])
                hidden = mark is not None and mark.mask(PrivacyRights()) is not None
                if LETTER in str(column[1]) and not hidden:
                    wrong.append((name, column))
                unmarked += not hidden
            app.drop_view("v")

    # A column of an order has personal letters only because the test put them there.
    assert [each for each in wrong if each[1][0] != "mail"] == []
    assert unmarked > len(QUERIES) / 2  # not everything is called personal
