"""The graph of an app: its declarations, and the data flow between them.

What it is: ``describe``, nodes (captures, inlets, aggregates, topics, tables, views, sinks) and edges as plain values
for ``GET /v1/app``.
Invariants: it starts no Spark and connects to nothing; a node's id is its kind and name, ``view:revenue``. Both ends of
every edge exist.
Not here: the current state (``status_reader.py``).
Read next: ``status_reader.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.log.contract import EventTopic
from headwater.log.schema.ddl import spark_type, to_ddl
from headwater.log.schema.normalization import WEIGHT
from headwater.sinks.postgres.postgres_serving import ALL_VIEWS
from headwater.views.explain import as_data

if TYPE_CHECKING:
    from headwater.app import App

Node = dict[str, Any]
Edge = dict[str, str]


def describe(app: App) -> dict[str, Any]:
    """The app's declarations, and all topics of its home.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
    >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
    >>> described = describe(app)
    >>> [node["id"] for node in described["nodes"]], described["edges"]
    (['table:users', 'view:countries'], [{'from': 'table:users', 'to': 'view:countries'}])
    """
    bases = {topic.name: _base(topic) for topic in app.log.topics()}
    views = {view.name: _view(view) for view in app.views}
    for place in app.privacy_map():
        node = bases.get(place.relation) or views[place.relation]
        for each in node["columns"]:
            if each["name"] == place.column:
                each["personal"] = {"subjects": place.subjects, "purposes": place.purposes, "mask": place.mask}
    relations = {name.lower(): node for name, node in (bases | views).items()}
    nodes, edges = [*bases.values(), *views.values()], list[Edge]()

    def flows(start: str | None, end: str | None) -> None:
        if start is not None and end is not None:
            edges.append({"from": start, "to": end})

    def relation(name: str) -> str | None:
        found = relations.get(name.lower())
        return None if found is None else str(found["id"])

    for name, node in views.items():
        for given in node["reads"]:
            flows(relation(given), node["id"])
        for late in bases:  # one, or one for each of its topics
            if late == f"{name}.late" or late.startswith(f"{name}.late."):
                flows(node["id"], relation(late))
    for capture, tables in app.captures.declared().items():
        nodes.append({"id": f"capture:{capture}", "kind": "capture", "name": capture, "tables": sorted(tables)})
        for table in tables:
            flows(f"capture:{capture}", relation(table))
    for inlet in app.inlets:
        nodes.append(
            {
                "id": f"inlet:{inlet.name}",
                "kind": "inlet",
                "name": inlet.name,
                "type": inlet.kind,
                "topic": inlet.topic.name,
            }
        )
        flows(f"inlet:{inlet.name}", relation(inlet.topic.name))
    for name, aggregate in app.aggregates.items():
        declared = aggregate.declared
        node_id = f"aggregate:{name}"
        commands, events = list(declared.commands), list(declared.events)
        nodes.append({"id": node_id, "kind": "aggregate", "name": name, "commands": commands, "events": events})
        flows(node_id, relation(name))
    for sink in app.sinks:
        nodes.append(
            {
                "id": f"sink:{sink.name}",
                "kind": "sink",
                "name": sink.name,
                "type": sink.sink.kind,
                "view": sink.view,
                "to": str(sink.sink),
                "declared_at": sink.location,
            }
        )
        for view in [sink.view] if sink.view != ALL_VIEWS else [each.name for each in app.views if each.declared.serve]:
            flows(relation(view), f"sink:{sink.name}")
        if sink.sink.kind == "topic":
            flows(f"sink:{sink.name}", relation(str(getattr(sink.sink, "name", ""))))
    return {"app": app.name, "home": str(app.log.home), "nodes": nodes, "edges": edges}


def _base(topic: EventTopic) -> Node:
    settings = topic.settings
    kind = "table" if settings.key or topic.row().is_multiset else "topic"
    return {
        "id": f"{kind}:{topic.name}",
        "kind": kind,
        "name": topic.name,
        "schema": to_ddl(topic.schema),
        "columns": [
            {"name": field.name, "type": spark_type(field.type)} for field in topic.schema if field.name != WEIGHT
        ],
        "key": list(settings.key),
        "event_time": settings.event_time,
        "partitions": settings.partitions,
        "captured_by": settings.captured_by,
        "system": is_system(topic.name),
    }


def is_system(name: str) -> bool:
    """Whether a topic is Headwater's own, beside what users declare.

    >>> is_system("_alerts"), is_system("minutes.late"), is_system("baskets.late.orders"), is_system("orders")
    (True, True, True, False)
    """
    return name.startswith("_") or not {"late", "dead"}.isdisjoint(name.split(".")[1:])


def _view(view: Any) -> Node:
    declared, plan = view.declared, view.plan
    known = as_data(plan) if plan is not None else None
    return {
        "id": f"view:{view.name}",
        "kind": "view",
        "name": view.name,
        "sql": declared.sql,
        "declared_at": declared.location,
        "served": declared.serve,
        "reads": known["reads"] if known else list(declared.inputs),
        "columns": known["columns"] if known else [],
        "key": known["key"] if known else [],
        "cost": known["kind"] if known else None,
        "stages": known["stages"] if known else [],
        "notes": known["notes"] if known else [],
    }
