-- Highest bid in each window
SELECT b.auction, b.price, b.bidder, b.at, b.extra
FROM bid b
JOIN (
    SELECT max(price) AS highest, window(at, '10 seconds') AS period
    FROM bid
    GROUP BY window(at, '10 seconds')
) AS best
    ON b.price = best.highest AND b.at >= best.period.start AND b.at < best.period.end
