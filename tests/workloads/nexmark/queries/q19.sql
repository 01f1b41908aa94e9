-- The ten highest bids of each auction; the time breaks ties
SELECT *
FROM (
    SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, at) AS place FROM bid
) AS ranked
WHERE place <= 10
