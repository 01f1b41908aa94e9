"""Server state: shared by all requests of a server.

What it is: ``ServerState``: the app, its log, the serving store, the change feed, the engine's supervisor, and the
thread pools for blocking work.
Invariants: nothing here starts Spark. The event loop never waits for a disk: reads, writes and queries have a pool
each, so appends under backpressure and long queries do not delay readers.
Not here: routes (``application.py``), HTTP (``running.py``).
Read next: ``application.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.capture.captured_position import CapturedPosition
from headwater.errors import EngineUnavailable, NotYetCovered, TooMany, UnknownView
from headwater.hints import suggestion
from headwater.log.maintenance.bounded_logs import bounded
from headwater.log.token import Token
from headwater.server.commands.command_workers import CommandWorkers
from headwater.server.engine.engine_channel import Answer
from headwater.server.engine.supervisor import NONE, STANDBY, STARTING, EngineState, Supervisor
from headwater.server.engine.watchdog import Watchdog
from headwater.server.http.answers import Sending
from headwater.server.http.coalescing_executor import CoalescingExecutor
from headwater.server.http.connections import Counts
from headwater.server.http.held_consumers import HeldConsumers
from headwater.server.http.identity_tokens import Identities
from headwater.server.http.masked_answers import MaskedAnswers
from headwater.server.http.query_places import QueryPlaces
from headwater.server.queries.query_workers import QueryWorkers
from headwater.server.queries.spark_queries import SparkQueries
from headwater.server.realtime.broker import SubscriptionBroker
from headwater.server.realtime.change_notifier import ChangeNotifier
from headwater.server.realtime.status_events import Events
from headwater.server.server_settings import ServerSettings
from headwater.server.status.history_reader import HistoryReader
from headwater.server.status.lag_history import LagHistory
from headwater.server.status.status_reader import StatusReader
from headwater.server.status.topic_rates import TopicRates
from headwater.sinks.postgres.postgres_served_rows import PostgresServedRows
from headwater.views.lifecycle.stalls import topics_read
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.serving_store import ServingStore, store_path
from headwater.views.tick.pausing import check_covered

if TYPE_CHECKING:
    from headwater.app import App

READERS, WRITERS, ASKS = 8, 16, 8
SEARCHES = 2  # at once; a search takes milliseconds
WAITING_MAX = 64
SAMPLE_S = 1.0
PLAIN_LOGS = ("engine.log", "queries.log")  # of the server's children

Found = TypeVar("Found")


class ServerState:
    """One app in a server. ``start`` and ``stop`` run in the event loop."""

    def __init__(
        self,
        app: App,
        settings: ServerSettings | None = None,
        *,
        supervisor: Supervisor | None = None,
        file: Path | None = None,
    ) -> None:
        self.app = app
        self.log = app.log
        self.settings = settings or ServerSettings()
        self.supervisor = supervisor
        self.identities = Identities.of(self.settings)
        keys = None if self.identities is None else self.identities.keys
        self.masked = MaskedAnswers(app, audited=self.identities is not None, keys=keys)
        path = store_path(self.log.home, app.name)
        self.folder: Path = path.parent
        self.folder.mkdir(parents=True, exist_ok=True)
        # A server that runs no engine reads where the engine, on another machine, brings the rows.
        remote = app.serving if supervisor is None else None
        self.store = ServingStore(path) if remote is None else PostgresServedRows(remote)
        self.manifests = app._runtime.manifests  # it has no Spark before a tick
        self.committed = CommittedChanges(self.manifests, self.folder, self.log.local.files)
        self.rates = TopicRates()
        self._counting = ServingStore(path)  # counting rows must not delay point reads
        self.status = StatusReader(app, self._counting, self.rates)
        self.history = LagHistory()
        self.histories = HistoryReader(app)
        self.commands = CommandWorkers(file, self.settings.command_seconds_max)
        self.notifier = ChangeNotifier()
        self.broker = SubscriptionBroker(self)
        self.consumers = HeldConsumers(self.settings.members_max)
        self.connections = Counts(self.settings)
        self.events = Events(self)
        self.watchdog = Watchdog(self)
        self.closing = False
        self.started = time.monotonic()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="headwater-read")
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="headwater-write")
        self._queries = ThreadPoolExecutor(self.settings.queries_at_once_max, thread_name_prefix="headwater-query")
        self._brief_reads = CoalescingExecutor(READERS, "headwater-brief-read")
        self._brief_writes = CoalescingExecutor(WRITERS, "headwater-brief-write")
        self._asks = ThreadPoolExecutor(ASKS, thread_name_prefix="headwater-ask")
        self._sparks = ThreadPoolExecutor(WAITING_MAX, thread_name_prefix="headwater-spark")
        limits = self.settings
        self.sending = Sending(limits.answers_bytes_max, limits.send_seconds_max)
        at_once, memory = limits.queries_at_once_max, str(limits.query_memory_bytes)
        self.store_queries = QueryWorkers(
            "headwater.server.queries.store_worker", str(path), memory, at_once_max=at_once, what="queries"
        )
        self.searches = QueryWorkers(
            "headwater.server.queries.search_worker", memory, at_once_max=min(SEARCHES, at_once), what="searches"
        )
        self._spark_places = QueryPlaces(at_once, "queries of Spark")
        self._question_places = QueryPlaces(at_once, "questions")
        self.spark_queries = SparkQueries(app.name, self.log.home, app.spark_settings, limits, app.log_address)
        self._asking = 0  # requests to the engine, running and waiting
        self._tasks: list[asyncio.Task[None]] = []

    # Its life

    async def start(self) -> None:
        """Start background tasks. The engine's supervisor has started, or is started, by whoever made it."""
        loop = asyncio.get_running_loop()
        self.notifier.start(loop)
        self.notifier.watch_folder(self.folder)
        self.begin(self.store_queries.start())
        if self.app.aggregates:
            self.begin(self.commands.start(lambda: self.engine.state == STARTING))
        self.begin(self._sample())
        self.begin(self.events.run())
        self.begin(self.history.run(self))
        self.begin(self.watchdog.run())
        if self.supervisor is not None:
            self.supervisor.on_change = lambda: _call(loop, self.events.wake)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that ends with the server."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)
        return task

    def close_soon(self) -> None:
        """The server is about to stop: end waiting requests and subscriptions."""
        self.closing = True
        self.notifier.end()
        self.broker.end()
        self.events.wake()

    async def stop(self) -> None:
        """Stop everything, the engine last."""
        self.close_soon()
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.store_queries.close()
        self.commands.close()
        self.searches.close()
        await asyncio.get_running_loop().run_in_executor(None, self.spark_queries.close)
        if self.supervisor is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.supervisor.stop)
        await self.write(self.consumers.close)
        self._brief_reads.close()
        self._brief_writes.close()
        for pool in (self._readers, self._writers, self._queries, self._asks, self._sparks):
            pool.shutdown(wait=True, cancel_futures=True)
        self.notifier.close()
        self.store.close()
        self._counting.close()

    async def _sample(self) -> None:
        while True:
            with contextlib.suppress(
                Exception
            ):  # a topic that is just deleted, a busy catalog: the next second will do
                ends = await self.read(self._ends)
                self.rates.sample(time.monotonic(), ends)
                await self.read(self.consumers.close_expired)
                await self.read(self._bound_logs)
            await asyncio.sleep(SAMPLE_S)

    def _ends(self) -> dict[str, int]:
        return {topic.name: sum(topic.end_offsets().values()) for topic in self.log.topics()}

    def _bound_logs(self) -> None:
        for name in PLAIN_LOGS:
            bounded(self.folder / name, self.log.local.files)

    # Work in threads

    async def read(self, work: Callable[..., Found], *arguments: Any) -> Found:
        """Run a read in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *arguments)

    async def write(self, work: Callable[..., Found], *arguments: Any) -> Found:
        """Run an append or a commit in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, work, *arguments)

    async def read_briefly(self, work: Callable[..., Found], *arguments: Any) -> Found:
        """Run a short read, together with those of other requests."""
        return await self._brief_reads.do(work, *arguments)

    async def write_briefly(self, work: Callable[..., Found], *arguments: Any) -> Found:
        """Run an append that does not wait for the disk, together with those of other requests."""
        return await self._brief_writes.do(work, *arguments)

    async def question(self, key: str, work: Callable[..., Found], *arguments: Any) -> Found:
        """Run something that may take as long as a query; ``TooMany`` when the queue is full."""
        async with self._question_places.taken(key, self.settings.query_seconds_max):
            return await asyncio.get_running_loop().run_in_executor(self._queries, work, *arguments)

    # What requests ask for

    @property
    def engine(self) -> EngineState:
        """The engine's state."""
        return EngineState(NONE) if self.supervisor is None else self.supervisor.state

    @property
    def role(self) -> str:
        """What this server is: "active" (it runs the app), "standby", or "reader" (another process runs it)."""
        return {STANDBY: "standby", NONE: "reader"}.get(self.engine.state, "active")

    async def ask_engine(self, request: dict[str, Any], *, timeout: float) -> Answer:
        """Send a request to the process that runs the app."""
        supervisor = self._supervisor()
        if self._asking >= WAITING_MAX:
            raise TooMany(f"{WAITING_MAX} requests wait for the engine", hint="Try again in a moment.")
        self._asking += 1
        try:
            ask = partial(supervisor.ask, request, timeout=timeout)
            return await asyncio.get_running_loop().run_in_executor(self._asks, ask)
        finally:
            self._asking -= 1

    async def ask_spark(self, request: dict[str, Any], key: str) -> Answer:
        """Run a query in the query engine."""
        self._supervisor()
        async with self._spark_places.taken(key, float(request["seconds_max"])):
            return await asyncio.get_running_loop().run_in_executor(self._sparks, self.spark_queries.ask, request)

    def _supervisor(self) -> Supervisor:
        if self.supervisor is None:
            raise EngineUnavailable(
                "this server has no engine", hint="Start it without --no-engine, or query the serving store."
            )
        return self.supervisor

    def require_view(self, name: str) -> None:
        """Raise ``UnknownView`` for a view that the app does not declare."""
        names = [view.name for view in self.app.views]
        if name not in names:
            raise UnknownView(f'no view "{name}" was declared', hint=suggestion(name, names), view=name)

    async def until(self, look: Callable[[], Awaitable[Found | None]], wait: float, again: float = 1.0) -> Found | None:
        """The result of ``look``, or None after ``wait`` seconds or a request's limit."""
        return await self.notifier.until(look, min(wait, self.settings.wait_seconds_max), again)

    async def awaited(self, at_least: str, timeout: float) -> Token:
        """The token that a text names: its own, or that of a position in a captured database, once it is in the log."""
        position = CapturedPosition.parse(at_least)
        if position is None:
            return Token.parse(at_least)

        async def look() -> Token | None:
            return await self.read(position.found, self.log)

        token = await self.until(look, timeout, again=0.1)
        if token is None:
            raise await self.read(position.not_reached, self.log, timeout)
        return token

    async def covered(self, token: Token, timeout: float, views: Collection[str] = ()) -> None:
        """Wait until the serving store covers the token's topics that views read.

        A paused view among ``views`` that does not cover it raises at once.
        """

        async def look() -> bool | None:
            return await self.read(self._covers, token, views)

        # Nothing wakes this process when rows come to another machine.
        again = 1.0 if isinstance(self.store, ServingStore) else self.store.look_s
        if not await self.until(look, timeout, again):
            raise NotYetCovered(
                f'the views of app "{self.app.name}" have not reached {token} after {timeout:g} s',
                detail=f"The engine is {self.engine.state}.",
                hint="Is the app running? See /health/ready.",
                app=self.app.name,
            )

    def mentioned(self, sql: str) -> list[str]:
        """The views that a query names."""
        words = {word.lower() for word in re.findall(r"[\w.-]+", sql)}
        return [view.name for view in self.app.views if view.name.lower() in words]

    def _covers(self, token: Token, views: Collection[str]) -> bool | None:
        check_covered(self.manifests.current(), views, token)
        read = self.topics_read()
        known = Token({topic: of for topic, of in token.frontier.items() if topic.lower() in read})
        return True if self.store.frontier.covers(known) else None

    def topics_read(self) -> set[str]:
        """The topics that the app's views read, in lower case."""
        return topics_read(self.app.views)


def _call(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(work)
