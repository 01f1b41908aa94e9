"""Engine: the child process that runs the app with Spark, and what watches it.

``engine_process.py`` is the child, ``engine_child.py`` how its parent sees it, ``engine_channel.py`` questions to it;
``supervisor.py`` starts it again when it dies, or lets a standby take over, ``watchdog.py`` when it does not advance.
Read first: ``supervisor.py``, then ``engine_process.py``.
"""
