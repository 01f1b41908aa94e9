-- Winning bids
SELECT id, item_name, description, initial_bid, reserve, opened, expires, seller, category, auction, bidder, price, bid_at
FROM (
    SELECT
        a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.at AS opened, a.expires, a.seller, a.category,
        b.auction, b.bidder, b.price, b.at AS bid_at,
        row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.at) AS place
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.at BETWEEN a.at AND a.expires
) AS ranked
WHERE place = 1
