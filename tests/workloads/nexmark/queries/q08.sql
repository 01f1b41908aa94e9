-- New users who opened an auction in the window in which they came
SELECT p.id, p.name, p.starts
FROM (
    SELECT id, name, window(at, '10 seconds').start AS starts FROM person
) AS p
JOIN (
    SELECT DISTINCT seller, window(at, '10 seconds').start AS starts FROM auction
) AS a
    ON p.id = a.seller AND p.starts = a.starts
