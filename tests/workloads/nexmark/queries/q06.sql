-- Average selling price by seller, over the last ten auctions closed before each
SELECT
    seller,
    id,
    avg(final) OVER (PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM (
    SELECT a.id, a.seller, a.expires, max(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.at BETWEEN a.at AND a.expires
    GROUP BY a.id, a.seller, a.expires
) AS closed
