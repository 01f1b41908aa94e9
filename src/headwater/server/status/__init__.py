"""Status: how an app is, for the dashboard, for ``/v1/status`` and for Prometheus.

``status_reader.py`` gathers, ``lag_history.py`` and ``topic_rates.py`` keep the last minutes, ``app_graph.py`` is what
flows where, ``prometheus.py`` the metrics page.
Read first: ``status_reader.py``.
"""
