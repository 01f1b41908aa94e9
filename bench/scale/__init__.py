"""More than one machine: what a tick costs with the log on Kafka and Spark on a cluster, and what follows from it.

Read ``sizes.py``, then ``sources.py`` (events from Kafka and from the embedded log, beside Spark's connector),
``peers/`` (Flink's Kafka source), ``cluster_ticks.py`` (ticks on a cluster and here), ``driver_memory.py``
(the driver's memory while rows pass), ``sizing.py`` (a model that extrapolates). ``setup.sh`` brings the peers' jars.
"""
