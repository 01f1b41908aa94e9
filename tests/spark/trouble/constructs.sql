-- once wrong
SELECT id FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE NOT EXISTS (SELECT sum(w) FROM b WHERE b.k = a.k)
SELECT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS e, count(*) AS n FROM a GROUP BY 1
SELECT (SELECT max(w) FROM b WHERE b.k = a.k) AS m, count(*) AS n FROM a GROUP BY 1
SELECT id FROM a WHERE v IN (SELECT max(w) FROM b WHERE b.k = a.k)
SELECT k, count(*) AS n FROM a GROUP BY k HAVING EXISTS (SELECT 1 FROM b WHERE b.w = max(a.v))
SELECT map('k', k) AS m, count(*) AS n FROM c GROUP BY map('k', k)
SELECT count(*) AS n FROM c GROUP BY GROUPING SETS (())
SELECT id, (SELECT hash(count(*)) FROM b WHERE b.k = a.k) AS n FROM a
SELECT id, (SELECT hll_sketch_estimate(hll_sketch_agg(w)) FROM b WHERE b.k = a.k) AS n FROM a
SELECT id, (SELECT bitmap_count(bitmap_construct_agg(w)) FROM b WHERE b.k = a.k) AS n FROM a
SELECT id, (SELECT coalesce(avg(w), 0) || '' FROM b WHERE b.k = a.k) AS n FROM a
SELECT k, explode(sort_array(collect_list(v))) AS e FROM a GROUP BY k
SELECT id, stack(2, v, v + 1) AS x FROM a
SELECT id, stack(2, v, s, v + 1, upper(s)) AS (x, y) FROM a WHERE v > 0
SELECT k, count(*) AS n FROM a GROUP BY k HAVING 1 = 0
SELECT ucase(s) AS u, count(*) AS n FROM a GROUP BY upper(s)
SELECT v + k AS u, count(*) AS n FROM a GROUP BY k + v
FROM a |> WHERE v > 0 |> AGGREGATE count(*) AS n, max(v) AS m GROUP BY k |> SET n = n + 1 |> DROP m
FROM a |> EXTEND v * 2 AS w |> AS x |> WHERE x.w > 2 |> SELECT id, w
(SELECT k, v FROM c) |> UNION ALL (SELECT k, w FROM b) |> AGGREGATE sum(v) AS s GROUP BY k
FROM a |> ORDER BY id DESC |> LIMIT 2 |> SELECT id, v
SELECT parse_json('{"n": ' || v || '}'):n::BIGINT AS n FROM c WHERE v IS NOT NULL
WITH RECURSIVE r(n) MAX RECURSION LEVEL 20 AS (SELECT min(v) FROM c UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r
SELECT k, v, count(*) AS n FROM c GROUP BY ROLLUP (1, 2)
SELECT k, count(*) AS n FROM c GROUP BY k, v GROUPING SETS ((k), ())
SELECT k, count(*) AS n, grouping__id AS g FROM c GROUP BY CUBE (k, v)
SELECT explode(sort_array(collect_list(v))) AS v FROM c
SELECT k, explode(array(k, count(*))) AS n FROM c GROUP BY k
SELECT a.id FROM a LEFT SEMI JOIN b ON a.k = b.k AND w NOT IN (SELECT v FROM c WHERE v = w)
SELECT id, id_2 FROM a JOIN (SELECT id AS id_2 FROM range(3)) ON a.id = id_2
SELECT r.id, posexplode(array(r.id)) AS (p, c) FROM range(3) r JOIN a ON a.id = r.id
SELECT k, v FROM c UNION SELECT v, v FROM c
SELECT k FROM a INTERSECT (SELECT k FROM b UNION ALL SELECT k FROM c)
SELECT k, v FROM c LIMIT ALL
SELECT id, (SELECT max(v) FROM c WHERE c.k = a.k LIMIT 1) AS m FROM a
SELECT count(*) AS n FROM c LIMIT 1
SELECT id, s COLLATE system.builtin.UTF8_LCASE = 'X' AS same FROM a
SELECT id, CAST(s AS STRING COLLATE UTF8_LCASE) = 'X' AS same FROM a
SELECT k, (WITH x AS (SELECT max(w) AS w FROM b) SELECT * FROM x) FROM c
WITH X AS (SELECT 1 AS a), `x_2` AS (SELECT 2 AS b) SELECT * FROM (WITH x AS (SELECT 3 AS c) SELECT * FROM X, `X_2`)
SELECT count(*) AS n FROM (SELECT v AS all FROM c) GROUP BY all
SELECT * FROM (SELECT 1 AS a UNION ALL SELECT 2) x PIVOT (count(*) AS n FOR a IN (1, 2, 3))
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL (WITH s AS (SELECT n + 1 AS n FROM r) SELECT n FROM s WHERE n < 4)) SELECT n FROM r
SELECT k, explode(collect_list(v)) AS x FROM c GROUP BY k HAVING x > 0
SELECT * FROM (SELECT id, sum(v) OVER w AS s FROM a) x WINDOW w AS (PARTITION BY k ORDER BY id)
SELECT id FROM b WHERE s RLIKE '^[0-9]+$' AND CAST(s AS INT) NOT IN (SELECT k FROM a WHERE k IS NOT NULL)
SELECT count(10 / v) FILTER (WHERE v <> 0) AS n FROM a
SELECT * FROM (SELECT 1 AS x) s LEFT JOIN a ON true
SELECT every('yes') AS x, any(CAST(k > 1 AS STRING)) AS y, count_if(CAST(k > 1 AS STRING)) AS z FROM a
WITH q AS (SELECT k, k FROM a UNION SELECT k, v FROM c) SELECT count(*) AS n FROM q
SELECT n FROM (SELECT k AS x, v AS x, count(*) AS n FROM c GROUP BY k, v, x) AS t(a, b, n)
SELECT 10 div v AS x FROM a WHERE v <> 0 EXCEPT SELECT w FROM b
SELECT x.id, a.id AS i FROM (SELECT id, CAST(s AS INT) AS n FROM b WHERE s RLIKE '^[0-9]+$') x LEFT JOIN a ON a.k = x.n
SELECT id FROM a WHERE true AND NULL
SELECT id FROM a WHERE v > 1 AND 'yes'
SELECT a.id FROM a JOIN b ON a.k = b.k AND concat('t', 'rue')

-- subqueries
SELECT id FROM a WHERE EXISTS (SELECT max(w) FROM b)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k HAVING count(*) > 1)
SELECT id FROM a WHERE EXISTS (SELECT k FROM b WHERE b.k = a.k GROUP BY k HAVING count(*) > 1)
SELECT id FROM a WHERE v NOT IN (SELECT max(w) FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE v IN (SELECT w FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE v NOT IN (SELECT w FROM b)
SELECT id FROM a WHERE v NOT IN (SELECT w FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE (k, v) IN (SELECT k, w FROM b)
SELECT id FROM a WHERE (k, v) NOT IN (SELECT k, w FROM b)
SELECT id FROM a WHERE v IN (SELECT count(*) FROM b)
SELECT id FROM a WHERE v IN (SELECT count(*) FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE v = (SELECT max(w) FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE v > (SELECT count(*) FROM b WHERE b.k = a.k)
SELECT id FROM a WHERE coalesce((SELECT sum(w) FROM b WHERE b.k = a.k), 0) > 1
SELECT id, (SELECT count(*) FROM b WHERE b.k = a.k AND b.w > 1) AS n FROM a
SELECT id, (SELECT sum(w) FROM b WHERE b.k = a.k) + v AS n FROM a
SELECT id, (SELECT max(w) FROM b WHERE b.k < a.k) AS n FROM a
SELECT id, (SELECT count(*) + 1 FROM b WHERE b.k = a.k) AS n FROM a
SELECT id, (SELECT CASE WHEN count(*) = 0 THEN 'none' ELSE 'some' END FROM b WHERE b.k = a.k) AS n FROM a
SELECT id, (SELECT w FROM b WHERE b.id = a.id) AS w FROM a
SELECT id, (SELECT max(w) FROM b) AS w FROM a
SELECT id, (SELECT 1) AS w FROM a
SELECT id, (SELECT max(v) FROM c WHERE c.k = a.k GROUP BY c.k) AS w FROM a
SELECT id, EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS e FROM a
SELECT id, NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS e FROM a
SELECT id, v IN (SELECT w FROM b) AS e FROM a
SELECT id, v NOT IN (SELECT w FROM b) AS e FROM a
SELECT id, CASE WHEN EXISTS (SELECT 1 FROM b WHERE b.k = a.k) THEN v IN (SELECT w FROM b WHERE b.k = a.k) END AS e FROM a
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) OR v > 2
SELECT id FROM a WHERE v IN (SELECT w FROM b) OR k IN (SELECT k FROM c)
SELECT id FROM a WHERE NOT (v IN (SELECT w FROM b) AND k = 1)
SELECT id FROM a WHERE (v IN (SELECT w FROM b)) IS NULL
SELECT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS e, count(*) AS n FROM a GROUP BY EXISTS (SELECT 1 FROM b WHERE b.k = a.k)
SELECT sum((SELECT max(w) FROM b WHERE b.k = a.k)) AS s FROM a
SELECT k, count(*) AS n FROM a GROUP BY k HAVING EXISTS (SELECT 1 FROM b WHERE b.k = a.k)
SELECT k, count(*) AS n FROM a GROUP BY k HAVING count(*) > (SELECT count(*) FROM b WHERE b.k = a.k)
SELECT k, max(v) IN (SELECT w FROM b) AS m FROM a GROUP BY k
SELECT k, max(v) AS m FROM a GROUP BY k HAVING max(v) > (SELECT avg(v) FROM a)
SELECT a.id, b.id AS x FROM a JOIN b ON a.k = b.k AND a.v > (SELECT min(v) FROM c)
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON a.k = b.k AND b.w IN (SELECT v FROM c)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND EXISTS (SELECT 1 FROM c WHERE c.k = b.k))
SELECT id FROM a WHERE v IN (SELECT w FROM b WHERE k IN (SELECT k FROM c))
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b LEFT JOIN c ON b.k = c.k WHERE b.k = a.k AND c.k IS NULL)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k UNION ALL SELECT 1 FROM c WHERE c.k = a.k)
SELECT id FROM a WHERE v IN (SELECT w FROM b UNION SELECT v FROM c)
SELECT id FROM a WHERE v IN (SELECT w FROM b EXCEPT SELECT v FROM c)
SELECT id FROM a WHERE v IN (SELECT w FROM b ORDER BY id LIMIT 2)
SELECT id FROM a WHERE EXISTS (SELECT DISTINCT k FROM b WHERE b.k = a.k)
SELECT a.id, x.n FROM a, LATERAL (SELECT count(*) AS n FROM b WHERE b.k = a.k) x
SELECT a.id, x.w FROM a, LATERAL (SELECT w FROM b WHERE b.k = a.k) x
SELECT a.id, x.w FROM a LEFT JOIN LATERAL (SELECT w FROM b WHERE b.k = a.k) x ON true
SELECT a.id, x.w FROM a, LATERAL (SELECT w FROM b WHERE b.k = a.k ORDER BY b.id LIMIT 1) x

-- sets
SELECT k FROM a UNION SELECT k FROM b
SELECT k FROM a UNION ALL SELECT k FROM b UNION SELECT k FROM c
SELECT k FROM a UNION SELECT k FROM b UNION ALL SELECT k FROM c
SELECT k FROM a EXCEPT SELECT k FROM b
SELECT k FROM a EXCEPT ALL SELECT k FROM b
SELECT k FROM a INTERSECT SELECT k FROM b
SELECT k FROM a INTERSECT ALL SELECT k FROM c
SELECT k FROM a MINUS SELECT k FROM b
SELECT k FROM a UNION SELECT k FROM b INTERSECT SELECT k FROM c
(SELECT k FROM a UNION SELECT k FROM b) INTERSECT SELECT k FROM c
SELECT k FROM a EXCEPT (SELECT k FROM b EXCEPT SELECT k FROM c)
SELECT k, v FROM a UNION SELECT CAST(k AS STRING), w / 2 FROM b
SELECT k FROM a UNION ALL SELECT CAST(w AS STRING) FROM b
SELECT id, v FROM a UNION ALL SELECT id, w / 2 FROM b
SELECT k, NULL AS x FROM a UNION ALL SELECT k, w FROM b
SELECT k, v FROM a UNION ALL SELECT NULL, NULL
SELECT v FROM a EXCEPT SELECT w + 0.0 FROM b
SELECT k FROM a INTERSECT SELECT 1 AS k
SELECT k, count(*) AS n FROM (SELECT k FROM a UNION ALL SELECT k FROM c) GROUP BY k
SELECT DISTINCT k, v FROM c
SELECT DISTINCT coalesce(k, 0) AS k FROM c
SELECT DISTINCT k, count(*) OVER (PARTITION BY k) AS n FROM a
SELECT 1 AS x FROM a UNION SELECT 2 FROM b
SELECT s FROM a UNION SELECT upper(s) FROM a
SELECT k FROM a UNION ALL SELECT k FROM a
SELECT struct(k, v) AS x FROM a UNION SELECT struct(k, w) FROM b
SELECT k AS x FROM a UNION SELECT k FROM b ORDER BY x LIMIT 2
SELECT array(k) AS x FROM a EXCEPT SELECT array(k) FROM b

-- joins
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON a.k = b.k
SELECT a.id, b.id AS x FROM a RIGHT JOIN b ON a.k = b.k AND a.v > 1
SELECT a.id, b.id AS x FROM a FULL JOIN b ON a.k = b.k AND a.v > b.w
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON a.k = b.k WHERE b.id IS NULL
SELECT a.id, coalesce(b.w, -1) AS x FROM a LEFT JOIN b ON a.k + 1 = b.k
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON upper(a.s) = lower(b.s)
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON a.k = b.k AND a.k = 1
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON a.v > 1
SELECT a.id, b.id AS x FROM a FULL JOIN b ON a.id = b.id AND false
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON true
SELECT a.id, b.id AS x FROM a FULL JOIN b ON a.v < b.w
SELECT a.id, b.id AS x FROM a CROSS JOIN b WHERE a.k = b.k
SELECT a.id, b.id AS x FROM a, b WHERE a.k = b.k OR a.v = b.w
SELECT a.id, b.id AS x FROM a JOIN b ON a.k <=> b.k
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON a.k <=> b.k
SELECT a.id, b.id AS x, c.v FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.k = c.k AND c.v > a.v
SELECT a.id, b.id AS x FROM a LEFT JOIN (b JOIN c ON b.k = c.k) ON a.k = b.k
SELECT a.id, count(b.id) AS n, sum(b.w) AS s FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.id
SELECT x.id, y.id AS z FROM a x JOIN a y ON x.k = y.k AND x.id < y.id
SELECT x.id, y.id AS z FROM a x LEFT JOIN a y ON x.id = y.v
SELECT a.id FROM a LEFT SEMI JOIN b ON a.k = b.k AND a.v > b.w
SELECT a.id FROM a LEFT ANTI JOIN b ON a.k = b.k AND b.w > 1
SELECT a.id FROM a LEFT ANTI JOIN b ON a.v > b.w
SELECT c.k, b.id FROM c LEFT JOIN b ON c.k = b.id
SELECT k, a.v, b.w FROM a FULL JOIN b USING (k)
SELECT k, count(*) AS n FROM a FULL JOIN b USING (k) GROUP BY k
SELECT k, a.k AS ak, b.k AS bk FROM a LEFT JOIN b USING (k)
SELECT a.id, e.n FROM a LEFT JOIN e ON a.k = e.k
SELECT e.n, a.id FROM e LEFT JOIN a ON a.k = e.k AND a.v = e.n
SELECT a.id, b.id AS x FROM a JOIN b ON a.v BETWEEN b.w - 1 AND b.w + 1
SELECT a.id, b.id AS x FROM a LEFT JOIN b ON a.k = b.k AND a.s LIKE b.s || '%'
SELECT a.id, x.v FROM a LEFT JOIN (SELECT k, max(v) AS v FROM c GROUP BY k) x ON a.k = x.k
SELECT a.id, x.k FROM a LEFT JOIN (SELECT DISTINCT k, 1 AS one FROM c) x ON a.k = x.k WHERE x.one IS NULL
SELECT count(*) AS n FROM a LEFT JOIN b ON a.k = b.k AND b.w IS NULL
SELECT count(*) AS n FROM a FULL JOIN b ON a.k = b.k

-- groups
SELECT count(*) AS n, sum(v) AS s, avg(v) AS g, max(v) AS m FROM a
SELECT count(DISTINCT k) AS d, sum(DISTINCT v) AS s, count(v) AS n FROM c
SELECT k, count(DISTINCT v, k) AS d, avg(DISTINCT v) AS s FROM c GROUP BY k
SELECT k, count(*) FILTER (WHERE v > 1) AS n, sum(v) FILTER (WHERE v < 0) AS s, count(DISTINCT v) FILTER (WHERE v > 0) AS d FROM c GROUP BY k
SELECT k, sum(v) / count(*) AS r, max(v) - min(v) AS d FROM c GROUP BY k
SELECT k, sum(v + 1) * 2 AS r FROM c GROUP BY k HAVING sum(v) > count(*) OR max(v) IS NULL
SELECT k FROM c GROUP BY k HAVING k > 1
SELECT k FROM c GROUP BY k
SELECT count(*) AS n FROM c GROUP BY k
SELECT k + 1 AS x, count(*) AS n FROM c GROUP BY k + 1 HAVING k + 1 > 1
SELECT k, v, grouping(k) AS g, grouping_id() AS h, count(*) AS n FROM c GROUP BY k, v WITH ROLLUP
SELECT k, v, grouping_id(k, v) AS h, sum(v) AS n FROM c GROUP BY CUBE (k, v)
SELECT k, v, count(*) AS n FROM c GROUP BY GROUPING SETS ((k), (v), ())
SELECT count(*) AS n FROM c GROUP BY GROUPING SETS ((), ())
SELECT k, count(*) AS n FROM c GROUP BY GROUPING SETS ((k), (k))
SELECT k, v, count(*) AS n FROM c GROUP BY k, GROUPING SETS ((v), ())
SELECT k, count(*) AS n FROM c GROUP BY ROLLUP (k) HAVING grouping(k) = 1
SELECT k, sum(v) AS s FROM c GROUP BY ROLLUP (k) HAVING sum(v) > 1
SELECT coalesce(k, -1) AS k, count(*) AS n FROM c GROUP BY CUBE (coalesce(k, -1))
SELECT k, v + 1 AS w, count(DISTINCT v) AS n FROM c GROUP BY ROLLUP (k, v + 1)
SELECT max(k) AS k, count(*) AS n FROM c GROUP BY ROLLUP (v)
SELECT count(*) AS n FROM c WHERE false
SELECT sum(v) AS s, count(*) AS n FROM c WHERE v > 100 HAVING count(*) = 0
SELECT struct(k, v) AS x, count(*) AS n FROM c GROUP BY struct(k, v)
SELECT array(k) AS x, max(v) AS n FROM c GROUP BY 1
SELECT bool_and(v > 0) AS x, bool_or(v > 0) AS y, every(k IS NULL) AS z FROM c
SELECT k, min(s) AS x, max(struct(v, id)) AS y, min_by(s, id) AS z FROM a GROUP BY k
SELECT k, sort_array(collect_list(v)) AS x, sort_array(collect_set(v)) AS y FROM c GROUP BY k
SELECT k, percentile(v, 0.5) AS x, median(v) AS y, stddev(v) AS z FROM c GROUP BY k
SELECT k, sum(CASE WHEN v > 1 THEN 1 ELSE 0 END) AS x, count_if(v > 1) AS y FROM c GROUP BY k
SELECT k, sum(n) AS s FROM (SELECT k, v, count(*) AS n FROM c GROUP BY k, v) GROUP BY k
SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM c GROUP BY k) GROUP BY n
SELECT max(n) AS m FROM (SELECT count(*) AS n FROM c GROUP BY k)
SELECT k, count(*) AS n FROM e GROUP BY k
SELECT max(n) AS m, min(n) AS l FROM e
SELECT k, max(n) AS m, min(n) AS l FROM e GROUP BY k
SELECT any_value(k) AS x, count(*) AS n FROM c GROUP BY k
SELECT sum(1) AS x, sum(0.5) AS y, count(NULL) AS z, max(1) AS w FROM c
SELECT k, 1 AS one FROM c GROUP BY k
SELECT k % 2 AS g, k % 2 + count(*) AS x FROM c GROUP BY k % 2
SELECT sum(v) + 1 AS x, sum(v) + sum(k) AS y FROM c
SELECT count(*) + count(*) AS x FROM c GROUP BY k, v
SELECT approx_count_distinct(v) AS x FROM c
SELECT mode(v, true) AS x FROM c
SELECT listagg(s, ',') WITHIN GROUP (ORDER BY s) AS x FROM a
SELECT k, try_sum(v) AS x, try_avg(v) AS y FROM c GROUP BY k
SELECT k, first(k) AS x FROM c GROUP BY k
SELECT histogram_numeric(v, 50) IS NULL AS x FROM c
SELECT corr(k, v) AS x FROM c
SELECT regr_slope(v, k) AS x, covar_pop(k, v) AS y FROM c

-- windows
SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM a
SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r, dense_rank() OVER (PARTITION BY k ORDER BY v DESC) AS d FROM a
SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n FROM a
SELECT id, sum(v) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM a
SELECT id, count(*) OVER (PARTITION BY k ORDER BY id ROWS UNBOUNDED PRECEDING) AS n FROM a
SELECT id, lag(v) OVER (PARTITION BY k ORDER BY id) AS l, lead(v, 2, -1) OVER (PARTITION BY k ORDER BY id) AS m FROM a
SELECT id, first_value(v) OVER w AS f, last_value(v) OVER w AS l, nth_value(v, 2) OVER w AS n FROM a WINDOW w AS (PARTITION BY k ORDER BY id)
SELECT id, last_value(v) IGNORE NULLS OVER (PARTITION BY k ORDER BY id) AS l FROM a
SELECT id, lag(v) IGNORE NULLS OVER (PARTITION BY k ORDER BY id) AS l FROM a
SELECT id, ntile(2) OVER (PARTITION BY k ORDER BY id) AS n, percent_rank() OVER (PARTITION BY k ORDER BY v) AS p, cume_dist() OVER (PARTITION BY k ORDER BY v) AS c FROM a
SELECT id, sum(v) OVER () AS n FROM a
SELECT id, row_number() OVER (ORDER BY id) AS n FROM a
SELECT id, v FROM a QUALIFY row_number() OVER (PARTITION BY k ORDER BY id DESC) = 1
SELECT id, rank() OVER (PARTITION BY k ORDER BY id) AS r FROM a QUALIFY r <= 2
SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, id) AS n FROM a) WHERE n <= 2
SELECT id, sum(sum(v)) OVER (PARTITION BY id) AS s FROM a GROUP BY id
SELECT k, sum(count(*)) OVER () AS s, rank() OVER (ORDER BY count(*) DESC) AS r FROM a GROUP BY k
SELECT k, count(*) AS n, sum(count(*)) OVER (PARTITION BY k > 1) AS s FROM a GROUP BY k
SELECT id, v - avg(v) OVER (PARTITION BY k) AS d FROM a
SELECT id, max(v) OVER (PARTITION BY k, s) AS d FROM a
SELECT id, count(*) FILTER (WHERE v > 0) OVER (PARTITION BY k) AS d FROM a
SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS d FROM a
SELECT id, sum(v) OVER (PARTITION BY upper(s) ORDER BY id DESC) AS d FROM a
SELECT id, row_number() OVER (PARTITION BY 1 ORDER BY id) AS d FROM a
SELECT DISTINCT k, max(v) OVER (PARTITION BY k) AS m FROM a
SELECT id, CASE WHEN row_number() OVER (PARTITION BY k ORDER BY id) = 1 THEN 'first' END AS f FROM a
SELECT id, sort_array(collect_list(v) OVER (PARTITION BY k)) AS l FROM a
SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS d, avg(v) OVER (PARTITION BY k ORDER BY id ROWS 2 PRECEDING) AS e FROM a

-- others
SELECT id, x FROM a LATERAL VIEW explode(array(k, v)) t AS x
SELECT id, x FROM a LATERAL VIEW OUTER explode(filter(array(k, v), y -> y > 1)) t AS x
SELECT id, p, x FROM a LATERAL VIEW posexplode(array(k, v)) t AS p, x WHERE x > 0
SELECT x, count(*) AS n FROM a LATERAL VIEW explode(split(s, '')) t AS x GROUP BY x
SELECT id, x, y FROM a LATERAL VIEW explode(array(1, 2)) t AS x LATERAL VIEW explode(array(x, v)) u AS y
SELECT id, explode_outer(array(k, NULL)) AS x FROM a
SELECT id, inline(array(struct(k AS p, v AS q))) FROM a
SELECT id, stack(2, k, v, id, NULL) AS (x, y) FROM (SELECT CAST(k AS BIGINT) AS k, v, id FROM a)
SELECT a.id, t.x FROM a, LATERAL explode(array(a.k, a.v)) AS t(x)
SELECT * FROM (SELECT k, v, id FROM a) PIVOT (sum(id) FOR v IN (1, 2, 3))
SELECT * FROM (SELECT k, v FROM c) PIVOT (count(*) AS n FOR v IN (1 AS one, 2 AS two))
SELECT * FROM (SELECT id, k, v FROM a) UNPIVOT (x FOR name IN (k, v))
SELECT * FROM (SELECT id, k, v FROM a) UNPIVOT INCLUDE NULLS (x FOR name IN (k AS `K k`, v))
SELECT id, v FROM a ORDER BY v DESC NULLS LAST, id LIMIT 3
SELECT id, v FROM a ORDER BY v NULLS FIRST, id LIMIT 2 OFFSET 1
SELECT id FROM a ORDER BY id LIMIT 0
SELECT * FROM (SELECT id FROM a ORDER BY id LIMIT 3) WHERE id > 1
SELECT k, s FROM (SELECT k, sum(v) AS s FROM a GROUP BY k) ORDER BY s DESC, k LIMIT 1
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r
WITH x AS (SELECT k, count(*) AS n FROM a GROUP BY k) SELECT p.k, q.n FROM x p JOIN x q ON p.k = q.n
SELECT id FROM a WHERE false
SELECT id FROM a WHERE CAST(NULL AS BOOLEAN)
SELECT id, 1 / 2 AS x FROM a WHERE 1 = 1 AND NOT false
SELECT id FROM a WHERE v > 1 AND v < 1
SELECT sum(v) AS s FROM (SELECT DISTINCT v FROM c)
SELECT k, v FROM c WHERE k IS NULL OR v IS NULL
SELECT window.start AS w, count(*) AS n FROM (SELECT timestamp_seconds(v) AS ts FROM c) GROUP BY window(ts, '2 seconds')
SELECT session_window.start AS w, count(*) AS n FROM (SELECT timestamp_seconds(v) AS ts, k FROM c) GROUP BY session_window(ts, '2 seconds'), k
SELECT n, k FROM e WHERE n > 1
SELECT DISTINCT k FROM e
SELECT e.n, f.n AS m FROM e JOIN e f ON e.k = f.k AND e.n < f.n
SELECT e.k FROM e WHERE e.n NOT IN (SELECT v FROM c WHERE v IS NOT NULL)
-- correlated otherwise
SELECT id FROM a WHERE (SELECT count(*) FROM b WHERE b.k = a.k) = 0
SELECT id FROM a WHERE k IN (SELECT k FROM b WHERE b.id = a.id OR b.w > 2)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.w > a.v)
SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.w > a.v AND b.k = a.k)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k OR b.w = a.v)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.v > 1)
SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k + 1)
SELECT id FROM a WHERE k + 1 IN (SELECT k * 2 FROM b)
SELECT id FROM a WHERE coalesce(k, 0) NOT IN (SELECT coalesce(k, 0) FROM b)
SELECT id FROM a WHERE k NOT IN (1, NULL)
SELECT id FROM a WHERE k NOT IN (SELECT k FROM b WHERE false)
SELECT id FROM a WHERE NULL NOT IN (SELECT k FROM b WHERE k > 100)
SELECT sum(CASE WHEN v IN (SELECT w FROM b) THEN 1 ELSE 0 END) AS n FROM a
SELECT k, count(*) FILTER (WHERE v IN (SELECT w FROM b)) AS n FROM a GROUP BY k
SELECT k, max(v) AS m FROM a WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k) GROUP BY k HAVING max(v) > (SELECT min(w) FROM b)
SELECT id, (SELECT max(w) FROM b WHERE b.k = a.k AND b.w > a.v) AS m FROM a
SELECT id, (SELECT count(DISTINCT v) FROM c WHERE c.k = a.k) AS m FROM a
SELECT id, (SELECT sum(v) FROM c WHERE c.k = a.k) - (SELECT sum(w) FROM b WHERE b.k = a.k) AS m FROM a
SELECT id, (SELECT max(x.v) FROM (SELECT v, k FROM c WHERE v > 0) x WHERE x.k = a.k) AS m FROM a
SELECT id, coalesce((SELECT max(w) FROM b WHERE b.k = a.k), (SELECT max(v) FROM c)) AS m FROM a
SELECT id, (SELECT struct(max(w) AS hi, min(w) AS lo) FROM b WHERE b.k = a.k).hi AS m FROM a
SELECT id, row_number() OVER (PARTITION BY (SELECT max(w) FROM b WHERE b.k = a.k) ORDER BY id) AS n FROM a
SELECT a.id, x.n, y.m FROM a LEFT JOIN LATERAL (SELECT count(*) AS n FROM b WHERE b.k = a.k) x ON true LEFT JOIN LATERAL (SELECT max(v) AS m FROM c WHERE c.v > x.n) y ON true
SELECT v, (SELECT count(*) FROM a WHERE a.v = c.v) AS n FROM c
SELECT DISTINCT v, EXISTS (SELECT 1 FROM a WHERE a.v = c.v) AS e FROM c
SELECT k, v FROM c WHERE EXISTS (SELECT 1 FROM c x WHERE x.k = c.k AND x.v > c.v)
SELECT k, v FROM c WHERE v = (SELECT max(v) FROM c x WHERE x.k = c.k)
SELECT k, v FROM c WHERE (k, v) IN (SELECT k, max(v) FROM c GROUP BY k)
-- together
SELECT x.k, x.n, y.n AS m FROM (SELECT k, count(*) AS n FROM a GROUP BY k) x FULL JOIN (SELECT k, count(*) AS n FROM c GROUP BY k) y ON x.k <=> y.k
SELECT k, sum(n) AS n FROM (SELECT k, 1 AS n FROM a UNION ALL SELECT k, -1 FROM c) GROUP BY k HAVING sum(n) <> 0
SELECT k, n FROM (SELECT k, count(*) AS n FROM c GROUP BY k) WHERE n = (SELECT max(n) FROM (SELECT count(*) AS n FROM c GROUP BY k))
SELECT id, n FROM (SELECT id, k, rank() OVER (PARTITION BY k ORDER BY v DESC, id) AS n FROM a) x WHERE EXISTS (SELECT 1 FROM b WHERE b.k = x.k)
SELECT a.id, rank() OVER (PARTITION BY a.k ORDER BY b.w, a.id, b.id) AS n FROM a LEFT JOIN b ON a.k = b.k
SELECT k, count(*) AS n, grouping(k) AS g FROM (SELECT DISTINCT k, v FROM c) GROUP BY ROLLUP (k) HAVING count(*) > 0
SELECT k, v, sum(v) FILTER (WHERE v > 0) AS s, count(DISTINCT v) AS d FROM c GROUP BY CUBE (k, v)
SELECT coalesce(a.k, b.k) AS k, count(a.id) AS x, count(b.id) AS y FROM a FULL JOIN b ON a.k = b.k GROUP BY coalesce(a.k, b.k)
SELECT x.id, y.id AS z FROM (SELECT id, k FROM a ORDER BY id LIMIT 3) x LEFT JOIN b y ON x.k = y.k
SELECT k, v FROM c EXCEPT SELECT k, v FROM c WHERE v IS NULL
SELECT k, v FROM c INTERSECT ALL SELECT k, v FROM (SELECT k, v FROM a UNION ALL SELECT k, w FROM b)
SELECT max(struct(v, k)) AS x, min(array(k, v)) AS y, count(DISTINCT struct(k, v)) AS z FROM c
SELECT avg(CAST(v AS DECIMAL(10,2))) AS a, sum(CAST(v AS DECIMAL(38,2))) AS b, sum(CAST(v AS FLOAT)) AS d, avg(k) AS e FROM c
SELECT k, sum(v) OVER (PARTITION BY k) AS s, count(*) OVER (PARTITION BY k, v) AS n FROM c
SELECT k, v, dense_rank() OVER (PARTITION BY k ORDER BY v) AS n FROM c
SELECT n, m FROM (SELECT e.n, max(a.v) AS m FROM e LEFT JOIN a ON a.k = e.k GROUP BY e.n) WHERE m IS NOT NULL OR n > 3

-- guarded: expressions that raise over rows which a condition keeps away
SELECT id FROM a WHERE v <> 0 AND EXISTS (SELECT 1 FROM b WHERE b.w = 10 div a.v)
SELECT id FROM a WHERE v <> 0 AND 10 div v IN (SELECT w FROM b)
SELECT id FROM a WHERE v <> 0 AND NOT EXISTS (SELECT 1 FROM b WHERE b.w = 10 div a.v)
SELECT id FROM a WHERE v <> 0 AND 10 div v NOT IN (SELECT w FROM b WHERE w IS NOT NULL)
SELECT a.id, b.id AS y FROM a JOIN b ON a.v <> 0 AND b.w = 10 div a.v
SELECT k, count(*) AS n FROM a WHERE v <> 0 GROUP BY k, 10 div v
SELECT 10 div v AS x FROM (SELECT DISTINCT v FROM a WHERE v <> 0)
SELECT id, 10 div v AS x FROM a WHERE v <> 0 UNION SELECT id, w FROM b
SELECT k, sum(10 div v) FILTER (WHERE v <> 0) AS x FROM a GROUP BY k
SELECT sum(10 div v) FILTER (WHERE v <> 0) AS x, count(10 div v) FILTER (WHERE v <> 0) AS y, avg(10 div v) FILTER (WHERE v <> 0) AS z FROM a
SELECT k, max(10 div v) FILTER (WHERE v <> 0) AS x FROM a GROUP BY k
SELECT k, bool_and(10 div v > 1) FILTER (WHERE v <> 0) AS x FROM a GROUP BY k
SELECT k, sum(v) AS s FROM a GROUP BY k HAVING sum(v) <> 0 AND 10 / sum(v) > 1
SELECT k, CASE WHEN sum(v) <> 0 THEN 10 / sum(v) END AS x FROM a GROUP BY k
SELECT id, sum(10 div v) OVER (PARTITION BY k) AS x FROM a WHERE v <> 0
SELECT id, x FROM a LATERAL VIEW explode(array(10 div v)) e AS x WHERE v <> 0
SELECT id FROM b WHERE s RLIKE '^[0-9]+$' AND CAST(s AS INT) IN (SELECT k FROM a)
SELECT id FROM b WHERE s RLIKE '^[0-9]+$' AND EXISTS (SELECT 1 FROM a WHERE a.k = CAST(b.s AS INT))
SELECT id, (SELECT max(w) FROM b WHERE b.w = 10 div a.v) AS x FROM a WHERE v <> 0
SELECT x.id, y.i FROM (SELECT id, 10 div v AS q FROM a WHERE v <> 0) x FULL JOIN (SELECT id AS i, 10 div w AS q2 FROM b WHERE w <> 0) y ON x.q = y.q2
SELECT k, sum(10 div v) AS x FROM a WHERE v <> 0 GROUP BY ROLLUP (k)
SELECT id FROM a WHERE v <> 0 ORDER BY 10 div v, id LIMIT 2
SELECT id FROM a WHERE v <> 0 AND k IN (SELECT k FROM b WHERE b.w < 10 div a.v)
SELECT DISTINCT 10 div v AS x FROM a WHERE v <> 0
SELECT k, collect_set(10 div v) FILTER (WHERE v <> 0) AS x FROM a GROUP BY k
SELECT a.id FROM a LEFT SEMI JOIN b ON a.v <> 0 AND b.w = 10 div a.v
SELECT a.id FROM a LEFT ANTI JOIN b ON b.w = 10 div a.v WHERE a.v <> 0
SELECT a.id, b.id AS y FROM a JOIN b ON a.k = b.k WHERE a.v <> 0 AND b.w <> 0 AND a.id / a.v > b.id / b.w
SELECT a.id, b.id AS y FROM a LEFT JOIN b ON a.k = b.k WHERE b.w <> 0 AND a.id / b.w > 0
SELECT a.id, b.id AS y FROM a LEFT JOIN b ON a.k = b.k AND a.id / b.w > 0 AND b.w <> 0
SELECT a.id, 10 div b.w AS y FROM a LEFT JOIN (SELECT * FROM b WHERE w <> 0) b ON a.k = b.k
SELECT id FROM a WHERE v <> 0 AND 10 div v > (SELECT min(w) FROM b)
SELECT sum(10 / v) FILTER (WHERE v <> 0) AS x, count(10 / v) FILTER (WHERE v <> 0) AS y, avg(10 / v) FILTER (WHERE v <> 0) AS z FROM a
SELECT 10 / v AS x FROM a WHERE v <> 0 EXCEPT SELECT w FROM b
SELECT x.id, y.i FROM (SELECT id, 10 / v AS q FROM a WHERE v <> 0) x FULL JOIN (SELECT id AS i, 10 / w AS q2 FROM b WHERE w <> 0) y ON x.q = y.q2
SELECT k, 10 div v AS g, max(id) AS m FROM a WHERE v <> 0 GROUP BY k, 10 div v
SELECT id, row_number() OVER (PARTITION BY 10 div v ORDER BY id) AS n FROM a WHERE v <> 0
SELECT CAST(s AS INT) AS n FROM b WHERE s RLIKE '^[0-9]+$' INTERSECT SELECT k FROM a
SELECT a.id, x.id AS i FROM a LEFT JOIN (SELECT id, CAST(s AS INT) AS n FROM b WHERE s RLIKE '^[0-9]+$') x ON a.k = x.n
SELECT CAST(s AS INT) AS n, max(w) AS m FROM b WHERE s RLIKE '^[0-9]+$' GROUP BY 1
WITH n AS (SELECT id, CAST(s AS INT) AS n FROM b WHERE s RLIKE '^[0-9]+$') SELECT a.id, (SELECT max(id) FROM n WHERE n.n = a.k) AS m FROM a
WITH n AS (SELECT id, CAST(s AS INT) AS n FROM b WHERE s RLIKE '^[0-9]+$') SELECT n, percentile(id, 0.5) AS m FROM n GROUP BY n
WITH n AS (SELECT id, CAST(s AS INT) AS n FROM b WHERE s RLIKE '^[0-9]+$') SELECT id, n, rank() OVER (PARTITION BY n ORDER BY id) AS r FROM n
WITH n AS (SELECT id, CAST(s AS INT) AS n FROM b WHERE s RLIKE '^[0-9]+$') SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM n WHERE n.n = a.k)
SELECT count(CAST(s AS INT)) FILTER (WHERE s RLIKE '^[0-9]+$') AS n, count(DISTINCT k) AS d FROM b
SELECT a.id, b.id AS y FROM a FULL JOIN (SELECT * FROM b WHERE w <> 0) b ON a.v = 10 div b.w
SELECT grp, count(*) AS n FROM (SELECT 10 div v AS grp FROM a WHERE v <> 0 UNION ALL SELECT CAST(s AS INT) FROM b WHERE s RLIKE '^[0-9]+$') GROUP BY grp
SELECT id FROM a WHERE v <> 0 AND (10 div v, k) IN (SELECT w, k FROM b)
SELECT DISTINCT 10 div v AS x, k FROM a WHERE v <> 0 ORDER BY 1, 2 LIMIT 3
SELECT b.id, a.id AS i FROM a RIGHT JOIN b ON a.k = CAST(b.s AS INT) WHERE b.s RLIKE '^[0-9]+$'
SELECT 1 AS one FROM a LEFT JOIN b ON true WHERE a.v <> 0
SELECT a.id FROM a JOIN c ON a.k = c.k LEFT JOIN b ON b.w = 10 div a.v WHERE a.v <> 0 AND c.v > 0
SELECT a.id, b.id AS i FROM a LEFT JOIN b ON a.k = b.k RIGHT JOIN c ON c.k = a.k WHERE a.v > 1
SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.v > 1)
SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.v > 1 AND b.k = a.k) AND NOT EXISTS (SELECT 1 FROM b WHERE a.v > 2 AND b.k = a.k)
SELECT a.id FROM a WHERE v IS NOT NULL AND EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w < a.v) AND NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > a.v)
