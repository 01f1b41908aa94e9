"""An app whose rows are told apart by the claims of readers: served in ``test_row_filters.py``."""

import os

import headwater as hw

HOME = os.environ["SERVED_SHOP_HOME"]
BY = {"tenant": "tenant"}

app = hw.App("tenants", home=HOME)
deals = app.table("deals", "id BIGINT, tenant STRING, note STRING", key="id", rows_by=BY)
app.topic("calls", "tenant STRING, note STRING", rows_by=BY)
app.view("open_deals", "SELECT * FROM deals", rows_by=BY)
app.view("notes", "SELECT tenant, note, count(*) AS n FROM deals GROUP BY tenant, note", rows_by=BY)
app.view("closed", "SELECT id, note FROM deals")
app.view("everybody", "SELECT count(*) AS n FROM deals", rows_by={})
app.sink("open_deals", hw.sinks.Search(f"{HOME}-search", text=["note"]), name="index")
app.sink("open_deals", hw.sinks.Topic("copies"))
app.searches("watch", over=deals, text=["note"])
