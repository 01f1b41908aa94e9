-- Processing time windows: bids by the clock of the machine that happens to count them
SELECT bidder, count(*) AS bids, window(current_timestamp(), '10 seconds').start AS starts
FROM bid
GROUP BY bidder, window(current_timestamp(), '10 seconds')
