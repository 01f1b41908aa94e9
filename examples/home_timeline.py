"""A home timeline: people post, delete, follow and unfollow; everybody's 50 newest posts are kept up to date.

What it is: two tables that both change, joined, and the first rows of each follower. A post reaches all followers of
its author, following somebody brings their posts, and a deleted post makes room for the next one.
Invariants: running this file declares, and starts nothing; its home is TIMELINE_HOME, else ``./timeline-data``.
Not here: appending. Any process does that: see ``docs/tables.md``.
Read next: ``docs/windows.md``; ``bench/timeline_bench.py`` measures it.
"""

import os

import headwater as hw

app = hw.App("timeline", home=os.environ.get("TIMELINE_HOME", "./timeline-data"))

posts = app.table("posts", "id BIGINT, author BIGINT, text STRING, at TIMESTAMP", key="id")
follows = app.table("follows", "follower BIGINT, followee BIGINT", key=["follower", "followee"])

app.view(
    "timeline",  # without the place: a new post would change it in all rows of a timeline; readers order by at
    """
    SELECT follower, id, author, text, at FROM (
        SELECT f.follower, p.id, p.author, p.text, p.at,
               row_number() OVER (PARTITION BY f.follower ORDER BY p.at DESC, p.id DESC) AS place
        FROM follows f JOIN posts p ON p.author = f.followee)
    WHERE place <= 50
    """,
)
app.view(
    "reach",  # how many people a person's posts reach
    "SELECT followee AS author, count(*) AS followers FROM follows GROUP BY followee",
)

if __name__ == "__main__":
    app.run()
