"""The docs site: what mkdocs does not do by itself.

What it is: hooks of ``mkdocs.yml``. They add the pages that are not in ``docs/`` (README, ARCHITECTURE, CONTRIBUTING,
CHANGELOG, the examples) and those that are made from the code (the reference), and turn links between files of the
repository into links between pages.
Invariants: the same Markdown works on the site and in a checkout; a link that leads nowhere fails the build; nothing is
fetched from anywhere.
Not here: the theme and the order of the pages (``mkdocs.yml``).
Read next: ``mkdocs.yml``, ``CONTRIBUTING.md``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
MARKUP = re.compile(r"\[/?[a-z ]+\]")  # of rich, in the help of commands

# The reference: a page for each part, with the classes that people use. Everything public of them is shown.
REFERENCE = {
    "app": ("The app", ["headwater.app.App", "headwater.views.view.View", "headwater.views.tick.engine.TickReport"]),
    "log": (
        "The log",
        [
            "headwater.log.home.Log",
            "headwater.log.topic.Topic",
            "headwater.log.schema.event_metadata.Metadata",
            "headwater.log.table.Table",
            "headwater.log.token.Token",
            "headwater.log.batch.Batch",
            "headwater.log.producer.Producer",
            "headwater.log.groups.consumer.Consumer",
            "headwater.log.groups.worker.Worker",
            "headwater.log.groups.groups.Group",
            "headwater.log.topic_settings.TopicSettings",
        ],
    ),
    "reading": (
        "Reading views",
        ["headwater.views.serving.serving_store.ServingStore", "headwater.views.serving.change_feed.ChangeFeed"],
    ),
    "capture": (
        "Capture",
        [
            "headwater.capture.postgres.postgres_database.Postgres",
            "headwater.capture.mysql.mysql_database.MySQL",
            "headwater.capture.debezium.debezium_topic.Debezium",
            "headwater.capture.outbox.Outbox",
        ],
    ),
    "inlets": (
        "Inlets",
        [
            "headwater.inlets.webhook.webhook_inlet.Webhook",
            "headwater.inlets.statsd.statsd_inlet.StatsD",
            "headwater.inlets.amqp.amqp_inlet.Amqp",
            "headwater.inlets.amqp.amqp_publisher.AmqpPublisher",
            "headwater.inlets.kafka.kafka_inlet.Kafka",
            "headwater.inlets.zeromq.zeromq_inlet.ZeroMQ",
            "headwater.inlets.inlet.Inlet",
        ],
    ),
    "sinks": (
        "Sinks",
        [
            "headwater.sinks.sqlite_sink.SQLiteSink",
            "headwater.sinks.postgres.postgres_sink.PostgresSink",
            "headwater.sinks.redis_sink.RedisSink",
            "headwater.sinks.kafka.kafka_sink.KafkaSink",
            "headwater.sinks.search_sink.SearchSink",
            "headwater.sinks.parquet_sink.ParquetSink",
            "headwater.sinks.delta_sink.DeltaSink",
            "headwater.sinks.topic_sink.TopicSink",
            "headwater.sinks.webhook_sink.WebhookSink",
            "headwater.sinks.alert_sink.AlertSink",
            "headwater.sinks.email.Email",
            "headwater.sinks.sink.Sink",
            "headwater.sinks.sink.Target",
        ],
    ),
    "testing": (
        "The kit for tests",
        [
            "headwater.testing.list_sink.ListSink",
            "headwater.testing.manual_clock.ManualClock",
            "headwater.testing.crashing_disk.CrashingFiles",
        ],
    ),
    "errors": ("Errors", ["headwater.errors"]),
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in ``docs/``."""
    for place, text in made_pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files into links between pages."""
    del config, files
    return relinked(markdown, page.file.src_uri)


def made_pages() -> dict[str, str]:
    """The pages that are not in ``docs/``, by their place on the site."""
    pages = {place: (ROOT / name).read_text(encoding="utf-8") for name, place in ROOT_PAGES.items()}
    for example in sorted((ROOT / "examples").glob("shop_live.sql")) + sorted((ROOT / "examples").glob("*.py")):
        language = {".py": "python", ".sql": "sql"}[example.suffix]
        code = example.read_text(encoding="utf-8")
        pages[page_of(f"examples/{example.name}")] = f"# {example.name}\n\n```{language}\n{code}```\n"
    for part, (title, names) in REFERENCE.items():
        shown = "\n\n".join(f"::: {name}" for name in names)
        pages[f"reference/{part}.md"] = f"# {title}\n\n{shown}\n"
    pages["reference/commands.md"] = "\n".join(["# Commands", "", *commands()]) + "\n"
    return pages


def page_of(path: str) -> str:
    """Where a file of the repository is on the site.

    >>> page_of("README.md"), page_of("docs/log.md"), page_of("examples/shop.py")
    ('index.md', 'log.md', 'examples/shop_py.md')
    """
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path.startswith("examples/"):
        return path.replace(".", "_") + ".md"
    return path.removeprefix("docs/")


def relinked(markdown: str, place: str) -> str:
    """The text with its links as the site needs them.

    >>> relinked("[log](docs/log.md#order), [shop](examples/shop.py)", "index.md")
    '[log](log.md#order), [shop](examples/shop_py.md)'
    >>> relinked("[shop](../examples/shop.py), [web](https://example.com/)", "views.md")
    '[shop](examples/shop_py.md), [web](https://example.com/)'
    """
    source = {page: name for name, page in ROOT_PAGES.items()}.get(place, f"docs/{place}")

    def link(found: re.Match[str]) -> str:
        before, target, after = found.groups()
        if re.match(r"[a-z]+:", target):
            return found.group(0)
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        relative = os.path.relpath(page_of(path), os.path.dirname(place) or ".")
        return f"{before}{relative}{after}" if (ROOT / path).is_file() else found.group(0)

    return LINK.sub(link, markdown)


def commands() -> Iterator[str]:
    """Every command with its help and its options, as Markdown."""
    from typer.main import get_command

    from headwater.cli.main import app

    yield from _command(get_command(app), "headwater")


def _command(command: Any, path: str) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children is not None:
        for name, child in children.items():
            if not child.hidden:
                yield from _command(child, f"{path} {name}")
        return
    text = MARKUP.sub("`", command.help or "")
    yield from (f"## {path}", "", re.sub(r"`\n`", "`  \n`", text), "", "| option | |", "|---|---|")
    for parameter in command.params:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        argument = not names.startswith("`-")
        shown = f"`{(parameter.metavar or parameter.name).upper()}`" if argument else names
        yield f"| {shown} | {MARKUP.sub('`', getattr(parameter, 'help', None) or '').replace('|', chr(92) + '|')} |"
    yield ""
