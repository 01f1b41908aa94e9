"""Java's options for Spark in tests, where every query is run a few times.

What it is: ``SHORT_LIVED``, the environment of the tests' own Spark and of most processes that they start.
Invariants: the answers of queries are the same; only the time that they take is another one.
Not here: the demo, which runs as people start it.
Read next: ``tests/spark/conftest.py``.
"""

from __future__ import annotations

from headwater.demo import demo_command

# Every test runs other queries, each a few times. Java's second compiler works on a core of its own for code that is
# hardly run again: without it TPC-H and Nexmark took 229 s of processor time in place of 298, and starting Spark half.
# Spark itself writes Java for each query and compiles it: without that four long files took 158 s instead of 231.
# Over a few rows a task costs more than its work, and pyspark notes for each column the line of Python that it comes
# from: with one task for each stage and without the notes the views by time took 76 s of processor time, not 88.
# Queries of an app (``snapshot.py``) and ticks of many rows (``view_sessions.py``) set the number of tasks themselves.
# Queries that stand ready for many ticks are compiled as always (``plan_cache.py``).
INTERPRETED = (
    f"{demo_command.SHORT_LIVED} -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
)
SHORT_LIVED = {
    "JDK_JAVA_OPTIONS": f"{INTERPRETED} -Dspark.sql.shuffle.partitions=1"
    " -Dspark.sql.leafNodeDefaultParallelism=1 -Dspark.python.sql.dataFrameDebugging.enabled=false"
}
