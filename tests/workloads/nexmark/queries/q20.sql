-- Expand bid with auction
SELECT
    b.auction, b.bidder, b.price, b.channel, b.url, b.at AS bid_at, b.extra,
    a.item_name, a.description, a.initial_bid, a.reserve, a.at AS opened, a.expires, a.seller, a.category
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
