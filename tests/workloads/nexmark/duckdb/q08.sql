SELECT id, name, time_bucket(INTERVAL 10 SECONDS, "at") AS starts
FROM person
WHERE EXISTS (
    SELECT 1 FROM auction
    WHERE auction.seller = person.id
        AND time_bucket(INTERVAL 10 SECONDS, auction."at") = time_bucket(INTERVAL 10 SECONDS, person."at")
)
