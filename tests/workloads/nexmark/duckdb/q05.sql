WITH counts AS (
    SELECT auction, starts, count(*) AS bids
    FROM (
        SELECT
            auction,
            unnest([time_bucket(INTERVAL 2 SECONDS, "at") - to_seconds(2 * step) FOR step IN range(5)]) AS starts
        FROM bid
    )
    GROUP BY auction, starts
)
SELECT auction, starts, bids
FROM counts
QUALIFY bids = max(bids) OVER (PARTITION BY starts)
