"""The query engine: the child process that runs clients' Spark queries in a JVM of its own.

What it is: ``python -m headwater.server.queries.query_engine SOCKET PIPE``, started by ``spark_queries.py`` for the
first such query; the first line of standard input holds the secret and the settings.
Invariants: it reads committed data only and never takes the app over. It is expendable: when its JVM runs out of memory
or temporary disk, or a cancelled query does not end, the whole process ends and the next query starts a new one. It
runs at a lower priority than the engine.
Not here: which SQL is allowed (``views/serving/query_admission.py``), ticks (``server/engine/engine_process.py``).
Read next: ``spark_queries.py``.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError, InvalidQuery, OutOfMemory, SparkEnded
from headwater.log.schema.json_lines import json_line
from headwater.log.token import Token
from headwater.log_address import open_log
from headwater.server.engine.child_process import time_limit
from headwater.server.engine.engine_channel import Answer, EngineChannel
from headwater.server.http.renderings import rendered
from headwater.server.queries.store_worker import facts_of
from headwater.views.compiler.frontend.query_tables import tables_in
from headwater.views.privacy.hidden_columns import hidden_from_json
from headwater.views.runtime import AppRuntime
from headwater.views.serving.serving_queries import answer_too_large, out_of_time
from headwater.views.spark import own_process
from headwater.views.spark.collect import collected
from headwater.views.spark.jvm import OUT_OF_MEMORY

logger = logging.getLogger("headwater.server")

NICENESS = 5
LOOK_S = 0.5
LAST_WORDS_S = 1.0  # for sending the last answers
PYTHON_BYTES_MAX = 2 << 30  # of this Python process: rows of attached stores, and answers
RESULTS_PART = 4  # the part of the heap that results may take
TOO_LARGE = "spark.driver.maxResultSize"  # appears in Spark's error


class QueryEngine:
    """Runs queries in Spark."""

    def __init__(self, runtime: AppRuntime, local: Path, disk_bytes_max: int, memory_bytes: int) -> None:
        self.runtime = runtime
        self.local = local
        self.disk_bytes_max = disk_bytes_max
        self.memory_bytes = memory_bytes
        self._full = False

    def answer(self, request: dict[str, Any]) -> Answer:
        """Run one query, or explain one row; returns the encoded answer."""
        began = time.monotonic()
        seconds, bytes_max, rows_max = request["seconds_max"], request["bytes_max"], request["rows_max"]
        try:
            with self.runtime.mapped_errors(), time_limit(self.runtime.spark, seconds, out_of_time):
                if "why" in request:
                    return self._explained(request["why"], bytes_max)
                if "pattern" in request:
                    return self._tried(request["pattern"], bytes_max)
                tick, table = self._asked(request, rows_max, bytes_max, began + seconds)
        except SparkEnded as error:
            raise self._out_of_memory() if error.data["status"] == OUT_OF_MEMORY else error from error
        except MemoryError as error:
            raise self._out_of_memory() from error
        except Exception as error:
            if self._full:
                raise OutOfMemory(
                    f"the query needs more than {self.disk_bytes_max >> 20:,} MiB of temporary disk",
                    hint="Reduce its sorts and joins.",
                ) from error
            if TOO_LARGE in str(error):
                raise answer_too_large(bytes_max) from error
            if "OutOfMemoryError" in str(error):  # raised by a Java class; the JVM runs on
                raise self._out_of_memory() from error
            if isinstance(error, HeadwaterError):
                raise
            logger.exception(
                "a query failed: %s", str(request.get("sql") or request.get("why") or request.get("pattern"))[:1000]
            )
            raise InvalidQuery("Spark cannot run the query", hint="Rewrite it.") from error
        truncated, table = table.num_rows > rows_max, table.slice(0, rows_max)
        facts = facts_of(table, tick, "spark", truncated, time.monotonic() - began)
        made = rendered(table, facts, request["kind"], bytes_max)
        return {"kind": made.kind, "headers": dict(made.headers)}, made.body

    def _explained(self, asked: dict[str, Any], bytes_max: int) -> Answer:
        """The input events behind a row of a view."""
        from headwater.views.provenance.explanations import explained

        key, where, at_tick, limit = (asked[name] for name in ("key", "where", "at_tick", "limit"))
        found = explained(self.runtime, asked["view"], key, where, at_tick=at_tick, limit=limit, as_text=True)
        return _as_json(found.to_dict(), bytes_max)

    def _tried(self, asked: dict[str, Any], bytes_max: int) -> Answer:
        """The rows that a view's pattern is looked for in, each with its match and its variable."""
        from headwater.views.lifecycle.pattern_trial import tried

        return _as_json(
            tried(self.runtime.log, asked["sql"], self.runtime.spark, asked["only"], asked["limit"]), bytes_max
        )

    def _asked(self, request: dict[str, Any], rows_max: int, bytes_max: int, deadline: float) -> Any:
        from headwater.views.serving.query_admission import admitted

        at_least = request["at_least"]
        limited = admitted(f"SELECT * FROM (\n{admitted(request['sql'])}\n) LIMIT {rows_max + 1}")
        token = Token.parse(at_least) if at_least else None
        left = max(0.0, deadline - time.monotonic())
        views = tables_in(limited) if token is not None else ()
        contents = self.runtime.contents(at_least=token, timeout=left, views=views, bytes_max=bytes_max)
        contents.hidden, contents.admits = hidden_from_json(request["hidden"]), True
        return contents.manifest.tick, contents.reply(limited).table

    def _out_of_memory(self) -> OutOfMemory:
        return OutOfMemory(
            f"this query, or a concurrent one, exceeded Spark's {self.memory_bytes >> 20:,} MiB for queries",
            hint="Reduce the query. The server's limit is --spark-query-memory-mib.",
            bytes_max=self.memory_bytes,
        )

    def watch(self) -> None:
        """End this process when the JVM ends or the temporary files exceed their limit."""
        java = self.runtime.spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        while java.poll() is None:
            time.sleep(LOOK_S)
            if _bytes_in(self.local) > self.disk_bytes_max:
                self._full = True
                self.runtime.spark.sparkContext.cancelAllJobs()
                break
        time.sleep(LAST_WORDS_S)
        os._exit(SparkEnded.exit_status)


def _bytes_in(folder: Path) -> int:
    count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                count += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:  # removed meanwhile
                continue
    return count


def _as_json(found: dict[str, Any], bytes_max: int) -> Answer:
    body = json_line(found).encode()
    if len(body) > bytes_max:
        raise answer_too_large(bytes_max)
    return {"kind": "application/json", "headers": {}}, body


def main(arguments: list[str]) -> None:
    """Answer requests until standard input closes."""
    socket, pipe = Path(arguments[0]), int(arguments[1])
    config = json.loads(sys.stdin.readline())
    os.nice(NICENESS)
    own_process.claim()
    memory, local = config["memory_bytes"], Path(config["local"])
    settings = {
        **config["settings"],
        "spark.driver.memory": f"{memory >> 20}m",
        "spark.driver.maxResultSize": str(memory // RESULTS_PART),
        "spark.local.dir": str(local),
        "spark.scheduler.mode": "FAIR",
        "spark.sql.broadcastTimeout": str(int(config["seconds_max"]) + 1),
    }
    from headwater.federation.attachments import Attachments

    with closing(open_log(config["home"], config["log"], maintained=False)) as log:
        runtime = AppRuntime(config["app"], log, (), settings, Attachments(log))
        runtime.java_log = local / "spark.log"
        collected(runtime.spark.sql("SELECT 1 AS one"), 1 << 20)  # the first query loads classes for seconds
        resource.setrlimit(
            resource.RLIMIT_DATA, (PYTHON_BYTES_MAX, PYTHON_BYTES_MAX)
        )  # the JVM runs already and is not limited
        engine = QueryEngine(runtime, local, config["disk_bytes_max"], memory)
        EngineChannel(socket, bytes.fromhex(config["secret"]), engine.answer)
        threading.Thread(target=engine.watch, name="headwater-watch", daemon=True).start()
        os.write(pipe, b"ready\n")
        sys.stdin.read()  # ends when the server closes it or dies
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
