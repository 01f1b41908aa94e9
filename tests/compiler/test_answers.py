"""Answers: queries of every form, maintained together over one series of ticks, are what DuckDB answers anew.

What it is: the forms that the random queries of ``test_incremental_equals_batch.py`` meet seldom or never, written out,
and checked after every tick against the user's own SQL and against the plan's ``query``.
Not here: dialects that differ (``views/compiler/sql/dialect.py`` has the list).
"""

from __future__ import annotations

import os
from random import Random

import pytest

from headwater.views.compiler.plan import PlanColumn, Relation, ViewPlan
from tests.compiler.comparing import bag_difference
from tests.compiler.duck import Batch, DuckRunner, compile_all

RELATIONS = (
    Relation(
        "a",
        (
            PlanColumn("id", "INT"),
            PlanColumn("k", "INT"),
            PlanColumn("x", "INT"),
            PlanColumn("s", "STRING"),
            PlanColumn("d", "DECIMAL(6, 2)"),
        ),
    ),
    Relation("b", (PlanColumn("id", "INT"), PlanColumn("k", "INT"), PlanColumn("y", "INT"), PlanColumn("t", "STRING"))),
    Relation("c", (PlanColumn("k", "INT"), PlanColumn("z", "DECIMAL(10, 2)"), PlanColumn("arr", "ARRAY<INT>"))),
)

QUERIES = (
    "select a.id, b.y from a join b on a.k = b.k where a.x > 1",
    "select distinct a.k, b.t from a, b where a.k = b.k",
    "select a.id, b.id as bid, b.t from a left join b on a.k = b.k and b.y > a.x where a.x < 4",
    "select a.id, b.id as bid from a right join b on a.k = b.k",
    "select a.id, b.id as bid, coalesce(a.k, b.k) kk from a full join b on a.k = b.k",
    "select l.one, l.w, b.id from (select k, 1 as one, coalesce(x, 0) as w from a) l right join b on l.k = b.k",
    "select l.one, b.id from (select k, 1 as one from a) l full join b on l.k = b.k where l.one is null or b.y > 1",
    "select l.one, m.two, c.z from (select k, 1 as one from a) l join (select k, 2 as two from b) m on l.k = m.k "
    "right join c on m.k = c.k",
    "select b.id, l.one from b left join (select k, 1 as one from a where x > 1) l on l.k = b.k",
    "select a.id, b.t, c.z from a left join b on a.k = b.k left join c on a.k = c.k",
    "select a.id, b.t, c.z from a join b on a.k = b.k left join c on b.y = c.k where c.z is null",
    "select a.k, max(x) m, min(s) n from a group by a.k",
    "select b.t, max(a.x) m from a join b on a.k=b.k group by b.t",
    "select max(x) m, count(*) c from a",
    "select count(*) c, sum(z) s from c",
    "select id, row_number() over (partition by k order by x, id, s, d) rn from a qualify rn <= 2",
    "select k, sum(x) s, rank() over (order by sum(x)) r from a group by k",
    "select k, x, sum(x) over (partition by k) s from a where x is not null",
    "select k from a union select k from b",
    "select k, x from a union all select k, y from b",
    "select k from a except select k from b",
    "select k from a except all select k from b",
    "select k from a intersect all select k from b",
    "select a.k from a join c on a.k=c.k intersect select k from b",
    "select v, count(*) n from c lateral view explode(arr) e as v group by v",
    "select l.k, v from (select k, x + 1 as more, 1 as one from a) l lateral view explode(array(l.more, l.one)) e as v",
    "select a.id, v from (select id, k from a as a) a lateral view explode(array(a.k, a.id)) e as v where a.k > 1",
    "select a.id, v from a left join (select k, arr from c) r on a.k = r.k lateral view outer explode(r.arr) e as v",
    "select q.v, b.id from (select l.k, e.v from (select k, arr from c as l) l lateral view explode(l.arr) e as v) q "
    "join b on q.k = b.k",
    "select k, count(*) n from a group by k order by n desc, k limit 2",
    "select x.k, x.n, b.t from (select k, count(*) n from a group by k having count(*) > 1) x join b on x.k = b.k",
    "select a1.id, a2.id as id2 from a a1 join a a2 on a1.k = a2.k and a1.x < a2.x",
    "with w as (select k, sum(x) s from a group by k) select w1.k, w2.s from w w1 join w w2 on w1.s = w2.s",
    "select k, count(distinct x) n from a group by k",
    "select count(distinct x) n, sum(x) sx from a",
    "select a.id from a left anti join b on a.k = b.k",
    "select a.id from a left semi join b on a.k = b.k and b.y > a.x",
    "select id from a where exists (select 1 from b where b.k = a.k)",
    "select id from a where not exists (select 1 from b where b.k = a.k and b.y <> a.x)",
    "select id from a where exists (select 1 from b where b.k = a.k and b.y <> a.x) and not exists (select 1 "
    "from c where c.k = a.k) and x > 0",
    "select id from a where k in (select k from b where y > 1)",
    "select id from a where k not in (select k from b where y > 1)",
    "select id from a where k not in (select k from b where k is not null)",
    "select id from a where x > (select avg(y) from b)",
    "select id from a where x > (select avg(y) from b where b.k = a.k)",
    "select id, (select count(*) from b where b.k = a.k) n from a",
    "select id, (select sum(y) from b where b.k = a.k) n from a where x > 1",
    "select id from a where k in (select k from b) or x = 1",
    "select id from a where exists (select 1 from b where b.k = a.k) or exists (select 1 from c where c.k = a.k)",
    "select k, sum(x) s from a group by k having sum(x) > (select avg(y) from b)",
    "select a.id, b.t from a join b on a.k = b.k where a.x = (select max(y) from b b2 where b2.k = b.k)",
    "select id from a where exists (select 1 from b)",
    "select id from a where x < (select count(*) from b where b.k = a.k and b.y > 1)",
    "select 1 as one, 'x' as two",
    "select v.n, a.id from (values (1),(2),(3)) as v(n) join a on a.k = v.n",
    "select v.n, a.id from (values (1),(2),(3)) as v(n) left join a on a.k = v.n",
    "select n, count(*) c from (select k as n from a union all select 7 as n) group by n",
    "select a.id, b.id as bid from a left join b on a.x < b.y",
    "select t.k, t.m, a.id from (select k, max(x) m from a group by k) t join a on a.k = t.k and a.x = t.m",
    "select case when x > 1 then 'big' else 'small' end size, count(*) n from a group by case when x > 1 then "
    "'big' else 'small' end",
    "select id, lag(x) over (partition by k order by id, x, s, d) l, sum(x) over (partition by k, s order by "
    "id, x, d rows between 1 preceding and current row) s from a",
    "select a.k, b.t, c.z, count(*) n from a join b on a.k = b.k join c on c.k = b.k group by a.k, b.t, c.z",
    "select x.k, y.c from (select k, count(*) c from a group by k) x full join (select k, count(*) c from b "
    "group by k) y on x.k = y.k",
    "select id from a where (select count(*) from b) > 2 and x > 1",
    "select id, x + (select max(y) from b) as m from a",
    "select t.k, t.x, b.t from (select k, x from a order by x, k, id limit 3) t join b on t.k = b.k",
    "select k, sum(distinct x) n, max(s) m from a group by k",
    "select u.k, sum(u.v) s from (select k, x v from a union all select k, y from b union all select k, 1 from "
    "c) u group by u.k",
    "select a.id from a where a.k in (select b.k from b join c on b.y = c.k group by b.k having count(*) > 1)",
    "select bool_or(x > 2) o, bool_and(x > 0) e, k from a group by k",
    "select b.t, count(distinct a.x) + 1 n from a join b on a.k = b.k group by b.t",
    "select a.id, b.id as bid from a, b where (a.k = b.k and a.x > 1) or (a.k = b.k and b.y < 2)",
    "select k, s, count(distinct x) c from a group by grouping sets ((k), (k, s))",
    "select id, x from a where not exists (select 1 from b where b.k = a.k) and k is not null",
    "select a.id, (select t from b where b.k = a.k order by id limit 1) as t from a where false",
    "select id from a where not (k in (select k from b) and x > 1)",
    "select a.id, b.y from a join b on a.k = b.k and b.y in (select k from c)",
    "select k, sum(x) s from a group by k having exists (select 1 from b where b.k = a.k)",
    "select x.k, max(x.n) m from (select k, s, count(*) n from a group by k, s) x group by x.k",
    "select k, rn from (select k, row_number() over (partition by k order by id, x, s, d) rn from a) where rn = 1",
    "select a.id, b.id as bid, c.z from a full join b on a.k = b.k left join c on c.k = coalesce(a.k, b.k)",
    "select a.id from a right join b on a.k = b.k where a.x > 1 or b.y is null",
    "select distinct k, x from a order by x desc, k limit 2",
    "select k, x from a union all select k, y from b order by k, x limit 3",
)

Row = tuple[object, ...]

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))


def value(kind: str | None, random: Random) -> object:
    """A value from a small range, so that joins meet, or null."""
    if random.random() < 0.2:
        return None
    if kind == "INT":
        return random.randint(0, 4)
    if kind == "STRING":
        return random.choice("pqr")
    if kind == "ARRAY<INT>":
        return [random.randint(0, 3) for _ in range(random.randint(0, 3))]
    return random.choice(["1.10", "2.25", "-3.00"])


def tick(content: dict[str, list[Row]], random: Random) -> dict[str, list[Row]]:
    """Random inserts and deletes, applied to the content. Gives the weighted rows."""
    changes: dict[str, list[Row]] = {}
    for relation in RELATIONS:
        rows = content[relation.name]
        weighted: list[Row] = []
        for _ in range(random.randint(0, 6)):
            if rows and random.random() < 0.4:
                weighted.append((*rows.pop(random.randrange(len(rows))), -1))
            else:
                rows.append(tuple(value(column.type, random) for column in relation.columns))
                weighted.append((*rows[-1], 1))
        changes[relation.name] = weighted
    return changes


@pytest.fixture(scope="module")
def plans() -> list[ViewPlan]:
    return compile_all(RELATIONS, [(f"v{number}", sql) for number, sql in enumerate(QUERIES)])


@pytest.mark.parametrize("seed", range(THOROUGH))
def test_every_view_is_its_query_after_every_tick(plans: list[ViewPlan], seed: int) -> None:
    random = Random(seed)
    content: dict[str, list[Row]] = {relation.name: [] for relation in RELATIONS}
    runner = DuckRunner(RELATIONS, plans, random=random)
    batch = Batch(RELATIONS, [(plan.name, plan.sql) for plan in plans])

    for number in range(3):
        runner.tick(tick(content, random))
        expected = batch.answers(content)
        for plan in plans:
            difference = bag_difference(runner.rows(plan.name), expected[plan.name])
            assert not difference, f"seed {seed}, tick {number}, {plan.sql}:\n{difference}"

    recomputed = Batch(RELATIONS, [(plan.name, plan.query) for plan in plans]).answers(content)
    assert [plan.query for plan in plans if bag_difference(recomputed[plan.name], expected[plan.name])] == []


def test_only_what_has_no_key_is_computed_whole(plans: list[ViewPlan]) -> None:
    whole = [plan.sql for plan in plans if any(stage.kind == "whole" for stage in plan.stages)]

    unexpected = [
        sql for sql in whole if not any(word in sql for word in ("limit", "max(", "over (order", "a.x < b.y"))
    ]

    assert unexpected == ["select id from a where not (k in (select k from b) and x > 1)"]
