SELECT auction, price, bidder, "at", extra
FROM bid
QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECONDS, "at"))
