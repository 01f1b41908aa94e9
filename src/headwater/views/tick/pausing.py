"""Pausing: a view that fails stands still, with its readers, and the others go on.

What it is: which failures pause a view (``is_its_own``), what the manifest says of a paused one (``Pause``), which
views stand still with it (``spread``), which are resumed together (``resumed_with``), and the error for whoever asks
more of a paused view than it holds (``refused``).
Invariants: whatever reads a paused view is paused too, so every running view is its query over the same prefix of the
log. A pause is of one query: another query of the same name is not paused.
Not here: committing a pause (``engine.py``), ending one (``views/lifecycle/rebuild.py``), finding the row
(``views/lifecycle/diagnosis.py``).
Read next: ``engine.py``, ``docs/failures.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.errors import Corruption, HeadwaterError, InvalidDeclaration, ViewFailed, ViewPaused
from headwater.log.token import Token
from headwater.views.spark.jvm import lost_contact

if TYPE_CHECKING:
    from headwater.views.state.manifest import Frontier, Manifest
    from headwater.views.tick.prepare import Prepared, PreparedView
    from headwater.views.view_declaration import ViewDeclaration

STOP, PAUSE = "stop", "pause"
POLICIES = (STOP, PAUSE)

# Not the view's fault, nor its rows': every view would be paused by them, and the next tick may well succeed.
ENVIRONMENT = (
    "OutOfMemoryError",
    "No space left on device",
    "Too many open files",
    "SparkContext was shut down",
    "stopped SparkContext",
    "SPARK_JOB_CANCELLED",
)


def checked_policy(value: str) -> str:
    """The policy, if it is one.

    >>> checked_policy("ignore")
    Traceback (most recent call last):
    headwater.errors.InvalidDeclaration: on_error cannot be 'ignore'
      Hint: Use one of: stop, pause.
    """
    if value not in POLICIES:
        raise InvalidDeclaration(f"on_error cannot be {value!r}", hint=f"Use one of: {', '.join(POLICIES)}.")
    return value


@dataclass(frozen=True)
class Pause:
    """Why and since when a view stands still, as the manifest keeps it."""

    tick: int  # its contents are of this tick; 0: it has none
    since_us: int
    frontier: Frontier  # the prefix of the log that its contents are of
    until: Frontier  # up to where the tick went that failed
    fingerprint: str  # of the query that failed; the contents may be of an older one
    because: tuple[str, ...]  # the views that failed: itself, or some that it reads
    error: Mapping[str, Any]  # as ``HeadwaterError.to_dict`` gives it
    aside: Mapping[str, Any] = field(default_factory=dict)  # the records set aside that its contents are without

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**vars(self), "frontier": _text(self.frontier), "until": _text(self.until), "because": [*self.because]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Pause:
        """The pause that ``to_json`` described."""
        return Pause(
            **{
                **data,
                "frontier": _numbers(data["frontier"]),
                "until": _numbers(data["until"]),
                "because": tuple(data["because"]),
            }
        )

    def covers(self, token: Token) -> bool:
        """Whether the view's contents have what a token asks for."""
        return self.tick > 0 and Token(self.frontier).covers(token)

    def describe(self, view: str) -> dict[str, Any]:
        """For programs: the API, ``--json``."""
        return {
            "tick": self.tick,
            "since": format_us(self.since_us),
            "because": [*self.because],
            "reason": self.reason(view),
            "error": dict(self.error),
            "frontier": str(Token(self.frontier)),
        }

    def reason(self, view: str) -> str:
        """Why, in one sentence."""
        told = f"{self.error['message']}: {self.error['detail']}" if self.error.get("detail") else self.error["message"]
        return told if self.because == (view,) else f"it reads {', '.join(self.because)}, which is paused: {told}"


def paused_in(manifest: Manifest) -> dict[str, Pause]:
    """The views that stand still at a manifest's tick."""
    return {name: Pause.from_json(data) for name, data in manifest.paused.items()}


def is_its_own(error: BaseException, declared: ViewDeclaration) -> bool:
    """Whether a failure is the view's own, by its query, its rows or its state, and its policy is to pause."""
    if declared.on_error != PAUSE:
        return False
    if isinstance(error, ViewFailed):
        text = f"{error} {error.__cause__ or ''}"
        return not lost_contact(error) and not any(sign in text for sign in ENVIRONMENT)
    if isinstance(error, HeadwaterError):
        return isinstance(error, Corruption)
    # An Arrow error is one of these; a disk or a connection that fails is none.
    return isinstance(error, ArithmeticError | LookupError | TypeError | ValueError | AssertionError)


def as_data(error: BaseException, declared: ViewDeclaration) -> dict[str, Any]:
    """An error as the manifest keeps it."""
    if not isinstance(error, HeadwaterError):
        first = str(error).splitlines()[0] if str(error) else ""
        error = ViewFailed(
            f"{declared.title} cannot be computed", detail=f"{type(error).__name__}: {first}"[:500], view=declared.name
        )
    data = error.to_dict()
    return {**data, "data": {name: value for name, value in data["data"].items() if isinstance(value, str | int)}}


def kept(manifest: Manifest, prepared: Prepared) -> dict[str, Pause]:
    """Which of a manifest's paused views are still paused: not those whose query was changed, which are filled anew."""
    found = {
        name: pause
        for name, pause in paused_in(manifest).items()
        if name in prepared.views and prepared.views[name].fingerprint == pause.fingerprint
    }
    found = {name: pause for name, pause in found.items() if name in pause.because or set(pause.because) & set(found)}
    return spread(found, prepared)


def spread(paused: Mapping[str, Pause], prepared: Prepared) -> dict[str, Pause]:
    """These and whatever reads them, at any distance; a reader that is not paused yet holds nothing."""
    found = dict(paused)
    for name, view in prepared.views.items():  # each behind those that it reads
        above = [found[read] for read in view.plan.reads if read in found]
        if above and name not in found:
            because = tuple(dict.fromkeys(root for pause in above for root in pause.because))
            found[name] = replace(
                above[0], tick=0, frontier={}, fingerprint=view.fingerprint, because=because, aside={}
            )
    return found


def with_readers(prepared: Prepared, names: Collection[str]) -> set[str]:
    """These views and all that read them, at any distance."""
    found = set(names)
    for name, view in prepared.views.items():  # each behind those that it reads
        if found & set(view.plan.reads):
            found.add(name)
    return found


def resumed_with(name: str, paused: Mapping[str, Pause], prepared: Prepared) -> set[str]:
    """The paused views to be computed anew with one: those that it reads, and those that waited for nothing else."""
    wanted = {name}
    for other in reversed(list(prepared.views)):
        if other in wanted:
            wanted |= {read for read in prepared.views[other].plan.reads if read in paused}
    for other, view in prepared.views.items():
        reads = {read for read in view.plan.reads if read in paused}
        if other in paused and reads and reads <= wanted and other not in paused[other].because:
            wanted.add(other)
    return wanted


def refused(view: str, pause: Pause, token: Token | None = None) -> ViewPaused:
    """The error for whoever asks for what a paused view does not have."""
    holds = f"its contents are of tick {pause.tick}" if pause.tick else "it has no contents yet"
    asked = f", and {holds}, which does not cover {token}" if token is not None else f", and {holds}"
    return ViewPaused(
        f'view "{view}" is paused since {format_us(pause.since_us)}{asked}',
        detail=pause.reason(view),
        hint=f"Correct its query or its rows (headwater view diagnose finds the row), then: "
        f"headwater view resume APP.py {pause.because[0]}",
        view=view,
        since=format_us(pause.since_us),
        tick=pause.tick,
        because=[*pause.because],
    )


def check_covered(manifest: Manifest, views: Collection[str], token: Token) -> None:
    """Refuse a token that a paused one of these views does not cover, and will not while it is paused."""
    for name, pause in paused_in(manifest).items() if manifest.paused else ():
        if name in views:
            asked = Token({topic: of for topic, of in token.frontier.items() if topic in manifest.frontier})
            if not pause.covers(asked):
                raise refused(name, pause, asked)


def _text(frontier: Frontier) -> dict[str, dict[str, int]]:
    return {topic: {str(number): offset for number, offset in of.items()} for topic, of in frontier.items()}


def _numbers(frontier: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {topic: {int(number): offset for number, offset in of.items()} for topic, of in frontier.items()}


def paused_by(
    failed: Mapping[str, Exception | None],
    views: Mapping[str, PreparedView],
    stop: Frontier,
    before: Mapping[str, Pause],
    manifest: Manifest,
    now_us: int,
) -> dict[str, Pause]:
    """The views that stand still after these have failed (None: with one that it reads)."""
    paused = dict(before)
    for name, error in failed.items():
        view = views[name]
        above = [paused[read] for read in view.plan.reads if read in paused]
        because = (name,) if error is not None else tuple(dict.fromkeys(r for each in above for r in each.because))
        known = manifest.paused.get(name)  # by another query, which is what it holds
        has = name in manifest.views
        held = Pause.from_json(known) if known is not None else None
        paused[name] = Pause(
            tick=held.tick if held is not None else manifest.tick if has else 0,
            since_us=now_us,
            frontier=held.frontier if held is not None else manifest.frontier if has else {},
            until=stop,
            fingerprint=view.fingerprint,
            because=because,
            error=above[0].error if error is None else as_data(error, view.declared),
            aside=held.aside if held is not None else manifest.aside,
        )
    return paused
