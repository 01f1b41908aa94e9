"""What is measured of captures: backfill, stream, latency, and what a database keeps. Read next: ``scale.py``."""
