"""An operation: one app's views at work in this process.

What it is: holds Spark, the engine and the runner, and starts each when it is first needed.
Invariants: only ticking takes the app over (a new epoch); reading never does, and works while another process runs it.
Not here: declaring (``app.py``); a tick (``tick.py``).
Read next: ``tick.py``, ``runner.py``, ``reading.py``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import NotYetCovered
from headwater.log.home import Log
from headwater.log.token import Token
from headwater.views.declarations import Declaration
from headwater.views.followers import Followers
from headwater.views.manifest import Manifest, Manifests
from headwater.views.reading import Contents
from headwater.views.session import start_session
from headwater.views.store import StateStore
from headwater.views.tick import Engine, TickReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.views.prepare import Prepared
    from headwater.views.runner import Runner


class Operation:
    """One app's views at work."""

    def __init__(self, name: str, log: Log, declared: Iterable[Declaration], settings: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self.declared = tuple(declared)
        self.settings = settings
        self.folder = Path(log.home).absolute() / "views" / name
        self.manifests = Manifests(log.catalog, name)
        self._spark: SparkSession | None = None
        self._prepared: Prepared | None = None
        self._engine: Engine | None = None
        self._runner: Runner | None = None

    @property
    def spark(self) -> SparkSession:
        """The session, started when first needed."""
        if self._spark is None:
            self._spark = start_session(self.name, self.settings, self.folder / "spark.log")
        return self._spark

    @property
    def prepared(self) -> Prepared:
        """The compiled views."""
        from headwater.views.prepare import prepare

        if self._prepared is None:
            self._prepared = prepare(self.declared, self.log, self.spark, self.folder / "scratch")
        return self._prepared

    @property
    def engine(self) -> Engine:
        """The engine; making it takes the app over."""
        if self._engine is None:
            prepared = self.prepared
            shutil.rmtree(self.folder / "scratch", ignore_errors=True)
            store = StateStore(self.folder, self.log.files, self.spark)
            followers = Followers(self.folder, self.manifests, prepared, self.log, self.spark)
            self._engine = Engine(prepared, self.manifests, store, followers)
        return self._engine

    def tick(self, *, rows_max: int | None = None) -> TickReport:
        """One advance, now."""
        return self.engine.tick(rows_max=rows_max)

    def start(self, *, on_tick: Callable[[TickReport], None] | None = None) -> None:
        """Let Structured Streaming tick, in the background."""
        from headwater.views.runner import Runner

        self.stop()
        runner = Runner(self.engine, self.spark, Path(self.log.home), self.folder / "checkpoint", on_tick)
        runner.start()
        self._runner = runner

    def run(self, *, timeout: float | None = None, on_tick: Callable[[TickReport], None] | None = None) -> None:
        """Tick until interrupted."""
        self.start(on_tick=on_tick)
        assert self._runner is not None
        try:
            self._runner.wait(timeout)
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()

    def stop(self) -> None:
        """End what ``start`` began."""
        if self._runner is not None:
            self._runner.stop()
            self._runner = None

    # Reading

    def contents(self, *, at_least: Token | None = None, timeout: float = 30.0) -> Contents:
        """Every relation as of a tick that covers ``at_least``."""
        manifest = self.covering(at_least, timeout) if at_least is not None else self.manifests.current()
        return Contents(self.log, self.folder, manifest, self.spark)

    def query(self, sql: str, *, at_least: Token | None = None, timeout: float = 30.0) -> pa.Table:
        """Run a query as of one tick."""
        return self.contents(at_least=at_least, timeout=timeout).query(sql)

    def covering(self, token: Token, timeout: float) -> Manifest:
        """The current manifest, once it covers the token as far as it is about topics that views read."""
        deadline = time.monotonic() + timeout
        pause = 0.005
        while True:
            manifest = self.manifests.current()
            known = {topic: of for topic, of in token.frontier.items() if topic in manifest.frontier}
            if manifest.tick and manifest.token.covers(Token(known)):
                return manifest
            if time.monotonic() > deadline:
                raise NotYetCovered(
                    f'the views of app "{self.name}" have not reached {token} after {timeout:g} s',
                    detail=f"They are at tick {manifest.tick}: {manifest.token or 'nothing yet'}.",
                    hint="Is the app running? headwater run APP.py keeps it up to date; app.tick() advances it once.",
                    app=self.name,
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def close(self) -> None:
        """Stop everything but Spark."""
        self.stop()
        if self._engine is not None:
            self._engine.close()
            self._engine = None
