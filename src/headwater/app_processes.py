"""Declaring claims, processes and services: what is decided over several aggregates.

What it is: ``AppProcesses``, a part of what an app declares; ``App`` comes from it.
Invariants: a declaration opens the log and starts nothing else; what makes no sense is refused at once.
Not here: aggregates themselves (``app_aggregates.py``), running (``app_services.py``).
Read next: ``aggregates/claims.py``; ``docs/processes.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headwater.app_aggregates import AppAggregates
from headwater.errors import UnknownAggregate
from headwater.hints import closest

if TYPE_CHECKING:
    from headwater.aggregates.claims import Claims
    from headwater.aggregates.processes.constraint import Compensate, Constraint
    from headwater.aggregates.processes.process import Process, ProcessHandle
    from headwater.aggregates.services.service import Service
    from headwater.aggregates.services.service_runner import ServiceRunner
    from headwater.durations import Duration
    from headwater.log.schema.event_metadata import Metadata
    from headwater.sinks.runner.declared_sinks import DeclaredSinks
    from headwater.views.view import View


class BackgroundRunner(Protocol):
    """What runs beside the ticks."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class AppProcesses(AppAggregates):
    """The claims, processes and services of an app."""

    claimed: dict[str, Claims]  # by name, as they were declared
    processes: dict[str, Process]
    constraints: dict[str, Constraint]
    services: dict[str, Service]
    answering: dict[str, ServiceRunner]  # of services by function

    if TYPE_CHECKING:  # of the other half of the app

        def view(self, name: str, sql: str) -> View: ...
        @property
        def sinks(self) -> DeclaredSinks: ...

    def claims(self, name: str, *, partitions: int = 8) -> Claims:
        """Declare values of which each has one owner at a time: user names, seats, numbers. See ``docs/processes.md``.

        Their events are rows of the topic ``name``: ``claimed``, ``released`` and ``transferred``.

        >>> import headwater as hw, tempfile
        >>> names = hw.App("shop", home=tempfile.mkdtemp()).claims("username")
        >>> _ = names.claim("ada", owner="user-7", request_id="signup-1")
        >>> names.owner("ada")
        'user-7'
        """
        from headwater.aggregates.claims import Claims

        self._views.check_free(name)
        made = Claims(self.log, name, partitions=partitions)
        self.claimed[name] = made
        self.aggregates[name] = made.repository  # verified, shown and asked like any other
        return made

    def get_claims(self, name: str) -> Claims:
        """The claims that were declared under this name.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).get_claims("username")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownAggregate: no claims "username" were declared
          Hint: Declare them: app.claims("username").
        """
        if name not in self.claimed:
            raise _unknown(
                f'no claims "{name}" were declared', name, self.claimed, f'Declare them: app.claims("{name}").'
            )
        return self.claimed[name]

    def process(
        self, name: str, *, request: Any, deadline: Duration | None = None, partitions: int = 8
    ) -> Callable[[Callable[..., Any]], Process]:
        """Declare a process by a function that yields its steps; the decorated name is the process.

        ``request``: the columns of a request. ``deadline``: a request that has not ended so long after its start is
        taken back. A step that is rejected raises ``Rejected`` in the function; one that lets it pass has failed, and
        its steps are taken back, the last one first. The function is run again after a crash, over the recorded
        results: it must yield the same steps. The events of its requests are rows of the topic ``name``.
        See ``docs/processes.md``; ``Process`` has a whole example.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import step
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> names = app.claims("username")
        >>> @app.process("rename", request="old STRING, new STRING, user STRING")
        ... def rename(request, context):
        ...     mine = {"owner": request["user"], "id": context.id}
        ...     yield step(names, request["new"], "claim", **mine, undo=("release", mine))
        ...     yield step(names, request["old"], "release", owner=request["user"], id="signup-1")
        >>> _ = names.claim("ada", owner="user-7", request_id="signup-1")
        >>> handle = app.request("rename", {"old": "ada", "new": "lovelace", "user": "user-7"}, request_id="r-1")
        >>> rename.drain(), names.owner("ada"), names.owner("lovelace")
        (1, None, 'user-7')
        """
        from headwater.aggregates.processes.process import Process
        from headwater.views.view_declaration import caller

        location = caller()

        def declare(function: Callable[..., Any]) -> Process:
            self._views.check_free(name)
            made = Process(
                self.log,
                name,
                function,
                request,
                self.aggregates,
                deadline=deadline,
                partitions=partitions,
                location=location,
            )
            self.processes[name] = made
            return made

        return declare

    def get_process(self, name: str) -> Process:
        """The process that was declared under this name.

        >>> import headwater as hw, tempfile
        >>> hw.App("bank", home=tempfile.mkdtemp()).get_process("transfer")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownAggregate: no process "transfer" was declared
          Hint: Declare it: @app.process("transfer", request="…").
        """
        if name not in self.processes:
            declare = f'Declare it: @app.process("{name}", request="…").'
            raise _unknown(f'no process "{name}" was declared', name, self.processes, declare)
        return self.processes[name]

    def request(
        self, process: str, data: Mapping[str, Any], *, request_id: str | None = None, metadata: Metadata | None = None
    ) -> ProcessHandle:
        """Ask a process for something: one event, written now. ``wait`` of the handle gives how it ended.

        ``request_id``: a request that is made again is recognised. Without one it has a new id.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import step
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> names = app.claims("username")
        >>> @app.process("sign_up", request="name STRING")
        ... def sign_up(request, context):
        ...     yield step(names, request["name"], "claim", owner=context.id)
        >>> handle = app.request("sign_up", {"name": "ada"}, request_id="user-7")
        >>> handle.get().status, app.request("sign_up", {"name": "ada"}, request_id="user-7").repeated
        ('running', True)
        """
        return self.get_process(process).request(data, request_id=request_id, metadata=metadata)

    def constraint(self, name: str, sql: str, *, compensate: Compensate, key: str | Sequence[str] = ()) -> Constraint:
        """Declare a rule that is checked afterwards: a view whose rows are violations, each compensated once.

        ``compensate(row, request_id)`` is called for each violation that appears; the command that it sends takes the
        ``request_id``, so that it happens once though the function may be called again after a crash. ``key``: the
        columns that name a violation; without one, the whole row does. One that goes and comes back is another one.
        It is a view of the same name, whose blanks are underscores. See ``docs/processes.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> stock = app.table("stock", "item STRING, amount BIGINT", key="item")
        >>> orders = app.topic("orders", "item STRING, amount BIGINT")
        >>> def restock(row, request_id):
        ...     print(request_id, row)
        >>> oversold = app.constraint("no oversell", "SELECT s.item, sum(o.amount) - max(s.amount) AS missing FROM "
        ...     "stock s JOIN orders o ON o.item = s.item GROUP BY s.item HAVING sum(o.amount) > max(s.amount)",
        ...     key="item", compensate=restock)
        >>> _ = stock.upsert([{"item": "cup", "amount": 2}])
        >>> _ = orders.append([{"item": "cup", "amount": 5}])
        >>> _ = app.tick()
        >>> oversold.drain()
        no oversell/1 {'item': 'cup', 'missing': 3}
        1
        """
        from headwater.aggregates.processes.constraint import declared_constraint

        view = re.sub(r"\W+", "_", name)
        made, sink = declared_constraint(
            self.log, name, view, (key,) if isinstance(key, str) else tuple(key), compensate
        )
        self.view(view, sql)
        self.sinks.declare(view, sink, None)
        self.constraints[name] = made
        return made

    def get_constraint(self, name: str) -> Constraint:
        """The constraint that was declared under this name.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).get_constraint("no oversell")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownAggregate: no constraint "no oversell" was declared
          Hint: Declare it: app.constraint("no oversell", "SELECT …", compensate=…).
        """
        if name not in self.constraints:
            declare = f'Declare it: app.constraint("{name}", "SELECT …", compensate=…).'
            raise _unknown(f'no constraint "{name}" was declared', name, self.constraints, declare)
        return self.constraints[name]

    # Services

    def service(
        self,
        name: str,
        *,
        request: Any,
        reply: Any,
        key: str | Sequence[str] | None = None,
        workers: int = 1,
        lease: Duration = "30 seconds",
        partitions: int = 8,
        retention: Duration | None = None,
    ) -> Callable[[Callable[..., Any]], Service]:
        """Declare a service by a function of the request, and of a ``ServiceContext`` if it wants one.

        Requests are rows of the topic ``<name>_requests``, replies of ``<name>_replies``. ``key``: requests with the
        same values are answered one at a time, in order. It is answered under ``run`` and ``start``, by so many
        ``workers``; a request whose worker does not answer within ``lease`` goes to another one. ``retention``: of both
        topics. See ``docs/processes.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> @app.service("quote", request="item STRING, amount BIGINT", reply="cents BIGINT", key="item")
        ... def quote(request):
        ...     return {"cents": 250 * request["amount"]}
        >>> with app.answering["quote"]:
        ...     app.ask("quote", {"item": "cup", "amount": 3}, request_id="q-1")
        {'cents': 750}
        """
        from headwater.aggregates.services.service import Service
        from headwater.aggregates.services.service_runner import ServiceRunner
        from headwater.views.view_declaration import caller

        location = caller()

        def declare(function: Callable[..., Any]) -> Service:
            made = Service(
                self.log,
                name,
                request=request,
                reply=reply,
                key=key,
                by_view=False,
                partitions=partitions,
                retention=retention,
                location=location,
            )
            self.services[name] = made
            self.answering[name] = ServiceRunner(made, function, workers=workers, lease=lease)
            return made

        return declare

    def service_view(self, name: str, *, request: Any, reply: Any, sql: str, partitions: int = 1) -> Service:
        """Declare a service by a view over its requests: each is answered by its row in the tick that contains it.

        The query reads the table ``<name>_requests``, which holds the open requests, and gives the column
        ``request_id`` and those of ``reply``. A request without a row is answered with nothing. See
        ``docs/processes.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> prices = app.table("prices", "item STRING, cents BIGINT", key="item")
        >>> quote = app.service_view("quote", request="item STRING, amount BIGINT", reply="cents BIGINT", sql=
        ...     "SELECT r.request_id, r.amount * p.cents AS cents FROM quote_requests r JOIN prices p USING (item)")
        >>> _ = prices.upsert([{"item": "cup", "cents": 250}])
        >>> id = quote.post({"item": "cup", "amount": 3}, timeout="1 minute")
        >>> _ = app.tick()
        >>> quote.wait(id).value()
        {'cents': 750}
        """
        from headwater.aggregates.services.answer_sink import AnswerSink, answers_sql
        from headwater.aggregates.services.service import Service
        from headwater.views.view_declaration import caller

        made = Service(
            self.log,
            name,
            request=request,
            reply=reply,
            key=None,
            by_view=True,
            partitions=partitions,
            retention=None,
            location=caller(),
        )
        self.view(name, sql)
        self.view(f"{name}_answers", answers_sql(made))
        self.sinks.declare(f"{name}_answers", AnswerSink(made), None)
        self.services[name] = made
        return made

    def get_service(self, name: str) -> Service:
        """The service that was declared under this name.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).get_service("quote")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownAggregate: no service "quote" was declared
          Hint: Declare it: @app.service("quote", request="…", reply="…").
        """
        if name not in self.services:
            declare = f'Declare it: @app.service("{name}", request="…", reply="…").'
            raise _unknown(f'no service "{name}" was declared', name, self.services, declare)
        return self.services[name]

    def ask(
        self,
        service: str,
        data: Mapping[str, Any],
        *,
        timeout: Duration = "5 seconds",
        request_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> dict[str, Any] | None:
        """Ask a service, and wait for its reply; a request that is repeated with its id gets the first one.

        ``timeout`` is the deadline, too: a request that is not answered until then is never answered otherwise than
        with ``RequestExpired``. ``Rejected``, ``ServiceFailed``: the function raised; ``TimedOut``: nobody has
        answered yet. See ``service`` for an example.
        """
        return self.get_service(service).ask(data, timeout=timeout, request_id=request_id, metadata=metadata)

    def runners(self) -> list[BackgroundRunner]:
        """What runs the declared processes and services beside the ticks; ``run`` and ``start`` start them."""
        from headwater.aggregates.processes.process_runner import OpenWork, ProcessRunner

        work: list[OpenWork] = [*self.processes.values(), *self.constraints.values()]
        return [*(ProcessRunner(each) for each in work), *self.answering.values()]


def _unknown(message: str, name: str, known: Iterable[str], declare: str) -> UnknownAggregate:
    near = closest(name, list(known))
    return UnknownAggregate(message, hint=f'Did you mean "{near}"?' if near else declare, name=name)
