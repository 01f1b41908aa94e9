-- Find last bid
SELECT auction, bidder, price, channel, url, at, extra
FROM (
    SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY at DESC) AS place FROM bid
) AS ranked
WHERE place <= 1
