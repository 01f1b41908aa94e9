"""Recorder factory: what ``PERSISTENCE_MODULE=headwater.aggregates.recorder`` gives to the library ``eventsourcing``.

What it is: ``HeadwaterFactory``, which reads an application's environment and makes its recorders.
Invariants: all recorders of an application are in one home. Histories are named after the application, in small
letters, as the library names its tables in PostgreSQL: several applications may share a home.
Not here: the recorders (``recorders.py``, ``tag_recorder.py``).
Read next: ``docs/eventsourcing.md``.
"""

from __future__ import annotations

import re
from typing import Any

from eventsourcing.dcb.persistence import DCBInfrastructureFactory
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    ProcessRecorder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic

from headwater.aggregates.recorder.recorders import (
    HeadwaterAggregateRecorder,
    HeadwaterApplicationRecorder,
    HeadwaterProcessRecorder,
    HeadwaterTrackingRecorder,
)
from headwater.aggregates.recorder.tag_recorder import HeadwaterDCBRecorder
from headwater.log.home import Log


class HeadwaterFactory(
    InfrastructureFactory[HeadwaterTrackingRecorder], DCBInfrastructureFactory[HeadwaterTrackingRecorder]
):
    """Recorders in a home.

    >>> import tempfile
    >>> from eventsourcing.application import Application
    >>> from eventsourcing.domain import Aggregate, event
    >>> class Dog(Aggregate):
    ...     @event("Named")
    ...     def __init__(self, name: str) -> None:
    ...         self.name = name
    >>> environment = {"PERSISTENCE_MODULE": "headwater.aggregates.recorder", "HEADWATER_HOME": tempfile.mkdtemp()}
    >>> class Kennel(Application):
    ...     pass
    >>> kennel = Kennel(environment)
    >>> fido = Dog("Fido")
    >>> [recording.notification.id for recording in kennel.save(fido)]
    [1]
    >>> kennel.repository.get(fido.id).name
    'Fido'
    >>> kennel.close()
    """

    HEADWATER_HOME = "HEADWATER_HOME"
    HEADWATER_FSYNC = "HEADWATER_FSYNC"
    ORIGINATOR_ID_TYPE = "ORIGINATOR_ID_TYPE"

    aggregate_recorder_class = HeadwaterAggregateRecorder
    application_recorder_class = HeadwaterApplicationRecorder
    tracking_recorder_class = HeadwaterTrackingRecorder
    process_recorder_class = HeadwaterProcessRecorder

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        home = self.env.get(self.HEADWATER_HOME)
        if not home:
            keys = ", ".join(self.env.create_keys(self.HEADWATER_HOME))
            raise InfrastructureFactoryError(f"no home for the log in the environment: set one of {keys} to a folder")
        self._fsync = (self.env.get(self.HEADWATER_FSYNC) or "interval").lower()
        if self._fsync not in ("always", "interval", "never"):
            raise InfrastructureFactoryError(
                f"{self.HEADWATER_FSYNC} cannot be '{self._fsync}': use always, interval or never"
            )
        self._id_type = (self.env.get(self.ORIGINATOR_ID_TYPE) or "uuid").lower()
        if self._id_type not in ("uuid", "text"):
            raise InfrastructureFactoryError(f"{self.ORIGINATOR_ID_TYPE} cannot be '{self._id_type}': use uuid or text")
        self.log = Log(home)

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """A recorder of aggregates' events, or of their snapshots."""
        return self.aggregate_recorder_class(self.log, self._named(purpose), **self._settings())

    def application_recorder(self) -> ApplicationRecorder:
        """A recorder of events that are an application's notifications."""
        wanted = self._class(self.APPLICATION_RECORDER_TOPIC, self.application_recorder_class)
        recorder: ApplicationRecorder = wanted(self.log, self._named("events"), **self._settings())
        return recorder

    def tracking_recorder(
        self, tracking_recorder_class: type[HeadwaterTrackingRecorder] | None = None
    ) -> HeadwaterTrackingRecorder:
        """A recorder of how far a projection is."""
        wanted = tracking_recorder_class or self._class(self.TRACKING_RECORDER_TOPIC, self.tracking_recorder_class)
        return wanted(self.log, self._named("tracking"))

    def process_recorder(self) -> ProcessRecorder:
        """A recorder of events together with tracking."""
        wanted = self._class(self.PROCESS_RECORDER_TOPIC, self.process_recorder_class)
        names = {"tracking": self._named("tracking")}
        recorder: ProcessRecorder = wanted(self.log, self._named("events"), **names, **self._settings())
        return recorder

    def dcb_recorder(self) -> HeadwaterDCBRecorder:
        """A recorder of events with tags."""
        return HeadwaterDCBRecorder(self.log, self._named("dcb_events"), fsync=self._fsync)

    def _class(self, topic: str, default: type[Any]) -> type[Any]:
        named = self.env.get(topic)
        if not named:
            return default
        found: type[Any] = resolve_topic(named)
        if not issubclass(found, default):
            raise InfrastructureFactoryError(f"{topic}: {found.__name__} is no subclass of {default.__name__}")
        return found

    def _settings(self) -> dict[str, Any]:
        return {"id_type": self._id_type, "fsync": self._fsync}

    def _named(self, purpose: str) -> str:
        name = re.sub(r"[^a-z0-9_.-]", "_", self.env.name.lower())
        return f"{name or 'stored'}_{purpose}"

    def close(self) -> None:
        """Close the log."""
        self.log.close()
