-- once wrong
SELECT struct(*) AS s FROM u
SELECT * FROM u FULL JOIN (SELECT id, Mixed FROM odd) USING (id)
SELECT count(*) FROM odd
SELECT id, current_date FROM odd
SELECT * FROM odd
SELECT u.id FROM u WHERE id IN (SELECT id FROM range(2))
SELECT * FROM VALUES (1, 'a'), (2, 'b')
WITH u2 AS (SELECT id AS x FROM u) SELECT * FROM u2, (SELECT max(v) AS y FROM u) AS u2
SELECT count(*) AS n FROM u, u
SELECT IDENTIFIER('id') AS i, w.v FROM IDENTIFIER('u') w WHERE IDENTIFIER('v') > 0
SELECT id, true FROM u
SELECT v > 1 AS `True`, count(*) AS `false` FROM u GROUP BY 1

-- case and quotes
SELECT ID, mixed, MIXED AS m2 FROM odd
SELECT Id AS iD, `MIXED` FROM ODD
SELECT odd.Mixed, ODD.id FROM odd
SELECT o.`with space`, o.`dotted.name` FROM odd AS o
SELECT `back``tick`, `größe` + 1 AS `grö``ße 2` FROM odd
SELECT `größe`, `a-b`, `1st`, x_ FROM odd
SELECT `größe` AS g FROM odd
SELECT id, `quote'd` FROM odd
SELECT `order`, `select`, `Group` FROM odd
SELECT `order` AS `by` FROM odd

-- words that mean something as functions or in the grammar
SELECT date, timestamp, user FROM odd
SELECT o.current_date, o.user FROM odd o
SELECT id FROM odd WHERE date > DATE'2016-01-01' AND timestamp = 'x'
SELECT end, interval, values FROM odd
SELECT left, left(left, 1) AS l FROM odd
SELECT date(date) AS date, count(*) AS count FROM odd GROUP BY date
SELECT id AS user, user AS id FROM odd
SELECT max(date) AS max, min(date) AS min FROM odd
SELECT id first, Mixed last FROM odd
SELECT id AS `select` FROM odd WHERE `select` > 1
SELECT year, count(*) AS n FROM (SELECT year(date) AS year FROM odd) GROUP BY year

-- no names: Spark's own
SELECT count(1), sum(id) FROM odd
SELECT id, id + 1 FROM odd
SELECT id, Mixed * 2, upper(user), 'O''k', 1.50, NULL IS NULL FROM odd
SELECT Mixed, count(DISTINCT user) FROM odd GROUP BY Mixed
SELECT id, CASE WHEN id > 1 THEN 'a' ELSE "b" END FROM odd
SELECT id, cast(id AS STRING) FROM odd
SELECT CAST(id AS STRING), id::int FROM odd
SELECT id, st.Inner, st.`odd name` FROM odd
SELECT id, st.inner, st.b.C FROM odd
SELECT st.b.c FROM odd
SELECT id, -Mixed, NOT (id > 1), id IN (1, 2), id BETWEEN 1 AND 2, user LIKE 'a%' FROM odd
SELECT id, `order` + `a-b` FROM odd
SELECT id, date - INTERVAL 1 DAY FROM odd
SELECT id, row_number() OVER (PARTITION BY Mixed ORDER BY id) FROM odd
SELECT id, substring(user, 1, 2), trim(user), extract(YEAR FROM date), Mixed % 2, id || user FROM odd
SELECT id, (SELECT max(v) FROM u) FROM odd
SELECT id, EXISTS (SELECT 1 FROM u WHERE u.id = odd.id) FROM odd
SELECT max(id) - min(id), avg(Mixed) FROM odd
SELECT sum(Mixed) FILTER (WHERE id > 1) FROM odd
SELECT DISTINCT Mixed + 0 FROM odd
SELECT id + 0 FROM odd UNION SELECT v FROM u
SELECT explode(array(1, 2)) FROM odd
SELECT id, explode(map('a', 1)) FROM odd
SELECT id, posexplode(array('x')) FROM odd
SELECT id, inline(array(struct(1 AS A, 'x' AS b))) FROM odd
SELECT struct(id, Mixed) FROM odd
SELECT id, named_struct('A', 1).A FROM odd
SELECT transform(array(1), x -> x + id) FROM odd
SELECT id, 1L, 2.5D, X'1F', true, DATE'2016-02-29' FROM odd
SELECT if(id > 1, 1, 2), coalesce(Mixed, 0), nvl(user, '') FROM odd
SELECT first_value(id) OVER (PARTITION BY id ORDER BY id) FROM odd
SELECT COUNT(*), Count(Mixed), SUM(Mixed) FROM odd

-- aliases
SELECT id AS Mixed, Mixed AS id FROM odd
SELECT id + 1 AS id FROM odd WHERE id > 1
SELECT Mixed + 1 AS Mixed, count(*) AS n FROM odd GROUP BY Mixed
SELECT Mixed % 2 AS Mixed, count(*) AS n FROM odd GROUP BY Mixed % 2
SELECT -id AS id FROM odd ORDER BY id LIMIT 2
SELECT id AS a, a + 1 AS b, b * 2 AS c FROM odd
SELECT id + 1 AS Mixed, Mixed * 2 AS twice FROM odd
SELECT Mixed AS g, sum(id) AS s, s + 1 AS t FROM odd GROUP BY g
SELECT Mixed AS g, count(*) AS n FROM odd GROUP BY g HAVING n > 1
SELECT upper(user) AS user, count(*) AS n FROM odd GROUP BY ALL
SELECT Mixed, user, count(*) AS n FROM odd GROUP BY 1, 2
SELECT user AS u, u.id FROM odd JOIN u USING (id)
SELECT x.id FROM odd x JOIN u x2 ON x.id = x2.id
SELECT id AS `a.b`, Mixed AS `c d` FROM odd
SELECT `a.b` + 1 AS n FROM (SELECT id AS `a.b` FROM odd)

-- nested
SELECT id FROM (SELECT id + 1 AS id FROM (SELECT id + 1 AS id FROM odd))
SELECT id FROM odd WHERE id IN (SELECT id FROM u WHERE u.v > id)
SELECT id FROM odd WHERE EXISTS (SELECT id FROM u WHERE id = odd.id)
SELECT id, (SELECT max(v) FROM u WHERE id = odd.id) AS v FROM odd
SELECT id, (SELECT count(*) FROM u o WHERE o.id = odd.id) AS n FROM odd
SELECT o.id FROM odd o WHERE EXISTS (SELECT 1 FROM u o WHERE o.v > 1)

-- CTE
WITH odd AS (SELECT id, Mixed FROM odd WHERE id > 1) SELECT id, Mixed FROM odd
WITH u AS (SELECT id FROM odd) SELECT id FROM u
WITH a AS (SELECT id FROM odd), b AS (SELECT id FROM a), a2 AS (SELECT a.id FROM a JOIN b USING (id)) SELECT id FROM a2
WITH a(x, `y z`) AS (SELECT id, v FROM u) SELECT x, `y z` FROM a
WITH A AS (SELECT id FROM odd) SELECT * FROM a
SELECT id FROM (WITH odd AS (SELECT id FROM u) SELECT id FROM odd)
WITH a AS (SELECT 1 AS id) SELECT odd.id FROM odd, a WHERE odd.id > a.id
WITH a AS (WITH a AS (SELECT id FROM u) SELECT id + 1 AS id FROM a) SELECT id FROM a

-- stars
SELECT o.* FROM odd o
SELECT * EXCEPT (Mixed, `with space`, st) FROM odd
SELECT st.* FROM odd
SELECT id, st.*, st.b.* FROM odd
SELECT *, id + 1 AS next FROM u
SELECT u.*, odd.Mixed FROM u JOIN odd ON u.id = odd.id
SELECT * FROM u JOIN odd USING (id)
SELECT * FROM odd JOIN u USING (ID)
SELECT * FROM u LEFT JOIN odd USING (id)
SELECT * FROM u RIGHT JOIN odd USING (id)
SELECT * FROM u NATURAL JOIN (SELECT id, Mixed FROM odd)
SELECT * FROM u x NATURAL FULL JOIN u y
SELECT x.* FROM u x JOIN u y USING (id)
SELECT y.* FROM u x LEFT JOIN u y USING (id, v)
SELECT x.id, y.id AS i2, id AS i3 FROM u x FULL JOIN u y USING (id)
SELECT * FROM u LEFT SEMI JOIN odd USING (id)
SELECT id, struct(u.*) AS s FROM u
SELECT count(*) AS n, count(id, v) AS m FROM u
SELECT * FROM (SELECT id AS a, v AS b FROM u) AS t(x, y)
SELECT x.a FROM u AS x(a, b)
SELECT * FROM u AS x(a, b) WHERE a > 1
SELECT coalesce(*) AS c FROM u

-- VALUES, range, no table
VALUES (1, 'a'), (2, 'b')
SELECT col1 FROM VALUES (1), (2)
SELECT * FROM VALUES (1, 'a') AS t(x, y)
SELECT u.id, v.col2 FROM u JOIN (VALUES (1, 'a'), (2, 'b')) v ON u.id = v.col1
SELECT * FROM range(3)
SELECT u.id, r.id AS n FROM u, range(2) r
SELECT id * 2 AS x FROM range(1, 10, 3)
SELECT 1 AS one, 'x'
SELECT 1
TABLE u
FROM u SELECT id
SELECT * FROM u, LATERAL (SELECT u.id + 1 AS n)
SELECT id, n FROM u, LATERAL explode(array(1, v)) AS e(n)
SELECT id, c FROM u LATERAL VIEW explode(array(1, v)) e AS c
SELECT * FROM u LATERAL VIEW explode(array(v)) e
SELECT * FROM u LATERAL VIEW posexplode(array(v)) AS p, c
SELECT u.*, e.* FROM u LATERAL VIEW OUTER explode(map(id, v)) e AS a, b

-- grouping, ordering, having
SELECT sum(v) AS s FROM u HAVING count(*) > 2
SELECT count(*) AS n FROM u HAVING false
SELECT 1 AS one FROM u HAVING max(v) > 1
SELECT v, count(*) AS n FROM u GROUP BY ALL
SELECT v % 2, count(*) FROM u GROUP BY ALL
SELECT count(*) AS n FROM u GROUP BY ALL
SELECT id, v FROM u ORDER BY ALL LIMIT 2
SELECT id, v FROM u ORDER BY 2 DESC, 1 LIMIT 2
SELECT v, count(*) AS n FROM u GROUP BY v ORDER BY n DESC, v LIMIT 1
SELECT v, id FROM u ORDER BY id LIMIT 2 OFFSET 1
SELECT DISTINCT v FROM u ORDER BY v DESC NULLS LAST LIMIT 2
SELECT v AS x, count(*) AS n FROM u GROUP BY x
SELECT (v) AS v, sum(id) AS s FROM u GROUP BY (v)
SELECT v, sum(id) AS s FROM u GROUP BY v, id HAVING sum(id) > 0
SELECT v + 1 AS v, sum(v) AS s FROM u GROUP BY v
SELECT v AS w, v + 1 AS x FROM u GROUP BY v, v + 1
SELECT 'c' AS c, count(*) AS n FROM u GROUP BY 'c'
SELECT/*+ BROADCAST(u) */ id FROM u
SELECT id FROM u;
SELECT `u`.`id` FROM `u`
SELECT ALL v FROM u
(SELECT id FROM u)
(SELECT id FROM u) UNION ALL (SELECT v FROM u)
SELECT id FROM u UNION ALL SELECT v AS other FROM u

-- pipes
FROM u |> WHERE v > 0 |> SELECT id, v + 1 AS w
FROM u |> AGGREGATE count(*) AS n GROUP BY v
FROM u |> EXTEND v * 2 AS w |> DROP v
FROM u |> SET v = v + 1
