-- Hot items: in each hopping window, the auctions with the most bids
WITH counts AS (
    SELECT auction, window.start AS starts, count(*) AS bids
    FROM bid
    GROUP BY auction, window(at, '10 seconds', '2 seconds')
)
SELECT counts.auction, counts.starts, counts.bids
FROM counts JOIN (SELECT starts, max(bids) AS most FROM counts GROUP BY starts) AS hottest
    ON counts.starts = hottest.starts AND counts.bids = hottest.most
