"""What is measured of captures: backfill, stream, latency, and the log that a database keeps. Read next: ``scale.py``."""
