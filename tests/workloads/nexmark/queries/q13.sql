-- Bounded side input join
SELECT b.auction, b.bidder, b.price, b.at, s.value
FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
