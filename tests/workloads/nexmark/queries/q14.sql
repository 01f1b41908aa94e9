-- Calculation; the function that counts a letter is written as an expression
SELECT
    auction,
    bidder,
    0.908 * price AS price,
    CASE
        WHEN hour(at) >= 8 AND hour(at) <= 18 THEN 'dayTime'
        WHEN hour(at) <= 6 OR hour(at) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS time_of_day,
    at,
    extra,
    length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
