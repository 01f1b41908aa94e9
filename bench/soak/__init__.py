"""The soak: an app that runs for an hour.

``steady_shop.py`` is the app, ``samples.py`` what is measured, ``plot.py`` a picture of it.
Read first: ``bench/soak_bench.py``.
"""
