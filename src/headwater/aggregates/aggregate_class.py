"""Aggregate class: a plain Python class whose command methods decide and whose event methods apply.

What it is: the decorators ``command`` and ``event``; ``AggregateClass``, what a class declares with them.
Invariants: the parameters of an event method are the columns of its events. Outside of a command its methods are plain
methods, so a class is tested without a log. Event methods must be pure: they see the state and their data alone.
Not here: loading, deciding and writing (``aggregate_repository.py``), the time and ids (``command_context.py``).
Read next: ``aggregate_repository.py``.
"""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from headwater.aggregates.command_context import DECIDING, SETTLED, CommandContext
from headwater.aggregates.events.event_types import Data, EventType, RecordedEvent, Upcaster
from headwater.aggregates.interrupts import is_interrupt
from headwater.durations import Duration, to_us
from headwater.errors import InvalidDeclaration, Misuse, ReplayFailed, UnknownAggregate
from headwater.hints import closest

SCALARS = {int, float, str, bool, bytes, type(None), dt.datetime, dt.date, decimal.Decimal}
RESERVED = {"request_id", "expected", "metadata", "timeout"}
CONTEXT = "context"
Method = Callable[..., Any]


class CommandMethod:
    """A method that decides: it validates, raises ``Rejected``, or emits events by calling event methods."""

    def __init__(self, function: Method) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self.function = function
        self.name = function.__name__
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.takes_context = any(each.name == CONTEXT for each in parameters)
        self.parameters = {each.name: each for each in parameters if each.name != CONTEXT}
        for each in parameters:
            if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) or each.name in RESERVED:
                raise InvalidDeclaration(
                    f'command "{self.name}" cannot have a parameter "{each.name}"',
                    hint=f"Name its parameters; {', '.join(sorted(RESERVED))} are taken by send.",
                )

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self.function, instance)

    def decide(self, instance: Any, context: CommandContext, arguments: Mapping[str, Any]) -> None:
        """Call the method on a state, with the context if it takes one."""
        self.function(instance, **arguments, **({CONTEXT: context} if self.takes_context else {}))

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of one command; an unknown or missing one is refused."""
        for name in given:
            if name not in self.parameters:
                near = closest(name, list(self.parameters))
                known = ", ".join(self.parameters) or "none"
                raise Misuse(
                    f'command "{self.name}" has no argument "{name}"',
                    hint=(f'Did you mean "{near}"? ' if near else "") + f"Its arguments: {known}.",
                    command=self.name,
                )
        missing = [
            each.name for each in self.parameters.values() if each.default is each.empty and each.name not in given
        ]
        if missing:
            raise Misuse(
                f'command "{self.name}" needs the argument "{missing[0]}"',
                hint=f"Its arguments: {', '.join(self.parameters)}.",
                command=self.name,
            )
        return dict(given)


class EventMethod:
    """A method that applies an event to the state. Called by a command, it emits the event too."""

    def __init__(
        self,
        function: Method,
        schema: Any = None,
        *,
        version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        tentative: Duration | None = None,
    ) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self.function = function
        self.name = function.__name__
        self.type = EventType.declared(self.name, schema or function, version=version, upcasters=upcasters)
        self.tentative_us = None if tentative is None else to_us(tentative, what="tentative")
        self.settled: dict[str, Method] = {}
        self._signature = inspect.signature(function)
        named = list(self._signature.parameters.values())[1:]
        self._defaults = {each.name: each.default for each in named if each.default is not each.empty}
        self.parameters = [each.name for each in named]

    def confirmed(self, function: Method) -> Method:
        """Decorator: what the confirmation of this tentative event does to the state."""
        self.settled["confirmed"] = function
        return function

    def cancelled(self, function: Method) -> Method:
        """Decorator: what takes this tentative event back, when it is cancelled or its deadline has passed."""
        self.settled["cancelled"] = self.settled["expired"] = function
        return function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self._called, instance)

    def _called(self, instance: Any, *args: Any, **data: Any) -> None:
        decision = DECIDING.get()
        if decision is None or decision.instance is not instance:
            self.function(instance, *args, **data)
            return
        values = data
        if args or len(data) != len(self.parameters):
            bound = self._signature.bind(instance, *args, **data)
            bound.apply_defaults()
            values = dict(list(bound.arguments.items())[1:])
        deadline = None if self.tentative_us is None else decision.context.now_us + self.tentative_us
        decision.emit(self.name, values, deadline)
        decision.applying = True
        try:
            self.function(instance, **values)
        finally:
            decision.applying = False

    def apply(self, instance: Any, data: Mapping[str, Any]) -> None:
        """Apply the data of a stored event. A field that the event does not have takes the parameter's default."""
        self.function(instance, **self.arguments(data))

    def arguments(self, data: Mapping[str, Any]) -> Data:
        """The parameters of the method for the data of an event; fields of other versions are left out if empty."""
        values = {}
        for name in self.parameters:
            value = data.get(name)
            values[name] = self._defaults[name] if value is None and name in self._defaults else value
        for name, value in data.items():
            if value is not None and name not in values:
                raise Misuse(f'it has a field "{name}", which the event method does not take')
        return values


def command(function: Method) -> CommandMethod:
    """Decorator of a method that decides: it validates, raises ``Rejected``, or calls event methods.

    >>> class Door:
    ...     opened_by = None
    ...     @command
    ...     def open(self, by: str) -> None:
    ...         self.opened(by)
    ...     @event
    ...     def opened(self, by: str) -> None:
    ...         self.opened_by = by
    >>> door = Door()
    >>> door.open("ada")
    >>> door.opened_by
    'ada'
    """
    return CommandMethod(function)


@overload
def event(given: Method, /) -> EventMethod: ...
@overload
def event(
    given: str | None = None,
    /,
    *,
    version: int = 1,
    upcasters: Mapping[int, Upcaster] | None = None,
    tentative: Duration | None = None,
) -> Callable[[Method], EventMethod]: ...
def event(
    given: Method | str | None = None,
    /,
    *,
    version: int = 1,
    upcasters: Mapping[int, Upcaster] | None = None,
    tentative: Duration | None = None,
) -> Any:
    """Decorator of a method that applies an event. Its parameters, or ``given`` as DDL, are the event's columns.

    ``version`` and ``upcasters``: when the meaning of the data changes, raise the version and say how data of each
    older one is read. ``tentative="10 minutes"``: the event holds until it is confirmed, or else until its deadline.

    >>> class Door:
    ...     @event(version=2, upcasters={1: lambda data: {"by": data["who"], "who": None}})
    ...     def opened(self, by: str) -> None:
    ...         self.by = by
    >>> door = Door()
    >>> door.opened("ada")
    >>> door.by
    'ada'
    """
    if callable(given) and not isinstance(given, str):
        return EventMethod(given)
    return lambda function: EventMethod(function, given, version=version, upcasters=upcasters, tentative=tentative)


class AggregateClass:
    """The commands and events that a class declares.

    >>> class Door:
    ...     @command
    ...     def open(self, by: str) -> None:
    ...         self.opened(by)
    ...     @event
    ...     def opened(self, by: str) -> None:
    ...         self.by = by
    >>> declared = AggregateClass("door", Door)
    >>> list(declared.commands), list(declared.events)
    (['open'], ['opened'])
    """

    def __init__(self, name: str, declared: type) -> None:
        if not isinstance(declared, type):
            raise InvalidDeclaration(
                f'aggregate "{name}" is declared by {type(declared).__name__}, not by a class', hint="Give the class."
            )
        self.name = name
        self.declared = declared
        members = {key: value for base in reversed(declared.__mro__) for key, value in vars(base).items()}
        self.commands = {key: value for key, value in members.items() if isinstance(value, CommandMethod)}
        self.events = {key: value for key, value in members.items() if isinstance(value, EventMethod)}
        self.fingerprint = _fingerprint(members)
        special = ("__slots__", "__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__new__")
        own = [vars(base) for base in declared.__mro__ if base is not object]
        self._is_plain = not any(name in base for base in own for name in special)
        if not self.events:
            raise InvalidDeclaration(
                f'class {declared.__name__} of aggregate "{name}" has no event methods',
                hint="Decorate the methods that change the state with @event, those that decide with @command.",
            )
        for each in self.events.values():
            if each.tentative_us is not None and "cancelled" not in each.settled:
                raise InvalidDeclaration(
                    f'event "{each.name}" of {declared.__name__} is tentative, and nothing says how it is taken back',
                    hint=f"Decorate a method with @{each.name}.cancelled; it is called with the event's data.",
                )
        self.new()  # a class that needs arguments is refused here

    def copy(self, instance: Any) -> Any:
        """A copy of a state that shares nothing that can be changed."""
        if not self._is_plain:
            return copy.deepcopy(instance)
        made: Any = object.__new__(self.declared)
        values = vars(instance)
        shared = {name: value for name, value in values.items() if type(value) in SCALARS}
        made.__dict__.update(shared if len(shared) == len(values) else copy.deepcopy(values))
        return made

    def new(self) -> Any:
        """An aggregate without events."""
        try:
            return self.declared()
        except TypeError as error:
            raise InvalidDeclaration(
                f'{self.declared.__name__}() of aggregate "{self.name}" failed: {error}',
                detail="An aggregate without events is made without arguments.",
                hint="Give __init__ no parameters; what begins an aggregate is its first event.",
            ) from error

    def command(self, name: str) -> CommandMethod:
        """One of its commands, or the error."""
        known = self.commands.get(name)
        if known is None:
            near = closest(name, list(self.commands))
            raise UnknownAggregate(
                f'aggregate "{self.name}" has no command "{name}"',
                hint=(f'Did you mean "{near}"? ' if near else "") + f"Its commands: {', '.join(self.commands)}.",
                aggregate=self.name,
                command=name,
            )
        return known

    def apply(self, instance: Any, recorded: RecordedEvent) -> None:
        """Apply a stored event to the state."""
        where = f'event {recorded.version} of {self.name} "{recorded.stream}"'
        known = self.events.get(recorded.type)
        if known is None:
            near = closest(recorded.type, list(self.events))
            raise ReplayFailed(
                f'{where} is of type "{recorded.type}", which {self.declared.__name__} does not know',
                detail=f"It is at partition {recorded.partition}, offset {recorded.position - 1}.",
                hint=(f'Was it renamed to "{near}"? ' if near else "")
                + f'Add an event method "{recorded.type}"; it may do nothing.',
                type=recorded.type,
            )
        data = recorded.data
        if recorded.type_version != known.type.version:
            data = known.type.upcast(data, recorded.type_version, where)
        try:
            known.apply(instance, data)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise ReplayFailed(
                f'event method "{recorded.type}" failed over {where}: {type(error).__name__}: {error}',
                detail=f"Its data: {data}. It is at partition {recorded.partition}, offset {recorded.position - 1}.",
                hint="The event is a fact and stays. Correct the event method, or add an upcaster.",
                type=recorded.type,
            ) from error

    def apply_settled(self, instance: Any, type: str, data: Mapping[str, Any], how: str) -> None:
        """Apply the confirmation or cancellation of a tentative event."""
        assert how in SETTLED
        known = self.events.get(type)
        hook = None if known is None else known.settled.get(how)
        if hook is not None and known is not None:
            hook(instance, **known.arguments(data))


def _fingerprint(members: Mapping[str, Any]) -> str:
    """A digest of the code that makes states of events: another one means that snapshots are not to be trusted."""
    digest = hashlib.sha256()
    for name in sorted(members):
        value = members[name]
        if isinstance(value, EventMethod):
            functions: Sequence[Any] = [value.function, *value.settled.values(), *value.type.upcasters.values()]
            digest.update(f"{name} {value.type.fields} {value.type.version}".encode())
        elif inspect.isfunction(value):
            functions = [value]
        else:
            if isinstance(value, str | int | float | tuple) and not name.startswith("__"):
                digest.update(f"{name}={value!r}".encode())
            continue
        for function in functions:
            code = getattr(function, "__code__", None)
            digest.update(name.encode() + (repr(function).encode() if code is None else _code(code)))
    return digest.hexdigest()[:32]


def _code(code: types.CodeType) -> bytes:
    constants = [_code(each) if isinstance(each, types.CodeType) else repr(each).encode() for each in code.co_consts]
    return b"|".join([code.co_code, repr(code.co_names).encode(), *constants])
