"""Media monitoring: articles come in, and everybody is told of those that match one of their searches.

What it is: stored searches over a stream of articles, the matches with their titles for each owner, and how often each
search matches. An article that is corrected or withdrawn takes its matches along.
Invariants: running this file declares, and starts nothing; its home is MEDIA_HOME, else ``./media-data``.
Not here: appending, and telling people: a sink carries the view ``mentions`` on, by mail or webhook.
Read next: ``docs/searches.md``.
"""

import os

import headwater as hw

app = hw.App("media", home=os.environ.get("MEDIA_HOME", "./media-data"))

articles = app.table(
    "articles",
    "id BIGINT, title STRING, body STRING, outlet STRING, language STRING, reach BIGINT, published TIMESTAMP",
    key="id",
)
watch = app.searches("watch", over=articles, text=["title", "body"], tokenizer="en_stem")

app.view(
    "mentions",
    """
    SELECT s.owner, w.search, w.document, a.title, a.outlet, w.score
    FROM watch w JOIN watch_searches s ON s.id = w.search JOIN articles a ON a.id = w.document
    """,
)
app.view("counts", "SELECT search, count(*) AS articles, sum(score) AS weight FROM watch GROUP BY search")
app.view("broken_searches", "SELECT search, owner, problem FROM watch_status WHERE problem IS NOT NULL")

if __name__ == "__main__":
    app.run()
