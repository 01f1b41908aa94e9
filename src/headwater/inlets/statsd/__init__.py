"""StatsD: metrics over UDP into a topic, lossy, with the losses counted.

``statsd_inlet.py`` receives, ``statsd_lines.py`` parses, ``kernel_drops.py`` counts what the kernel dropped.
Read first: ``statsd_inlet.py``.
"""
