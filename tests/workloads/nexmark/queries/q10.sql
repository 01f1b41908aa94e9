-- Log to files: the rows as they would be laid out; carrying them to files is a sink's work
SELECT
    auction, bidder, price, at, extra,
    date_format(at, 'yyyy-MM-dd') AS day,
    date_format(at, 'HH:mm') AS minute
FROM bid
