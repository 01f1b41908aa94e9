-- User sessions: bids of one bidder with gaps of less than ten seconds; written with window functions
SELECT bidder, session, count(*) AS bids, min(at) AS starts, max(at) AS ends
FROM (
    SELECT bidder, at, sum(opens) OVER (PARTITION BY bidder ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS session
    FROM (
        SELECT
            bidder, at,
            CASE WHEN at < lag(at) OVER (PARTITION BY bidder ORDER BY at) + INTERVAL '10' SECOND THEN 0 ELSE 1 END AS opens
        FROM bid
    ) AS marked
) AS numbered
GROUP BY bidder, session
