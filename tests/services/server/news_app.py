"""Stored searches that are served: the app of ``test_searches.py``."""

import os

import headwater as hw

app = hw.App("news", home=os.environ["SERVED_SHOP_HOME"])
articles = app.table("articles", "id BIGINT, title STRING, price DECIMAL(9,2), at TIMESTAMP", key="id")
watch = app.searches("watch", over=articles, text=["title"])
