"""Topics that were handed over to another log: they are read here, and written there.

What it is: the file ``moved`` in a topic's folder, with the address of the other log; ``hand_over`` makes it,
``refuse_handed_over`` is asked by every append.
Invariants: an append looks for the file under its partition's lock, and ``hand_over`` takes every lock once after it
made the file: when it returns, no process writes to the topic any more, and what was written before can be read.
Not here: copying the rows (``upkeep/log_mirror.py``). Read next: ``log/storage/partition_writer.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import Fenced

if TYPE_CHECKING:
    from headwater.log.topic import Topic

FILE = "moved"


def hand_over(topic: Topic, to: str) -> None:
    """Let no process append to a topic any more.

    >>> import headwater as hw, tempfile
    >>> orders = hw.Log(tempfile.mkdtemp()).topic("orders", "x INT")
    >>> hand_over(orders, "kafka://localhost:9092")
    >>> orders.append([{"x": 1}])
    Traceback (most recent call last):
        ...
    headwater.errors.Fenced: topic "orders" has moved to kafka://localhost:9092
      Nothing was written here.
      Hint: Write there: open the app with log="kafka://localhost:9092". ...
    >>> take_back(orders)
    >>> str(orders.append([{"x": 1}]))
    'orders:0=1'
    """
    files, path = topic.log.files, topic.directory / FILE
    descriptor = files.create(path.with_suffix(".new"), label="moved.create")
    try:
        files.truncate(descriptor, 0, label="moved.truncate")
        files.write(descriptor, [to.encode()], label="moved.write")
        files.sync(descriptor, label="moved.sync")
    finally:
        os.close(descriptor)
    files.rename(path.with_suffix(".new"), path, label="moved.rename")
    files.sync_dir(topic.directory, label="moved.sync_directory")
    for number in range(topic.settings.partitions):
        with topic.partition(number).held():
            pass  # appends that began before are over


def take_back(topic: Topic) -> None:
    """Let processes append again."""
    topic.log.files.unlink(topic.directory / FILE, label="moved.unlink")


def handed_over_file(directory: Path) -> str:
    """The file of a topic's directory that says where it has moved, if it has."""
    return str(directory / FILE)


def refuse_handed_over(path: str, name: str) -> None:
    """Refuse an append to a topic that was handed over; under the lock of a partition."""
    if not os.access(path, os.F_OK):  # at each append: joining paths and a failed stat would take four times as long
        return
    to = Path(path).read_text()
    raise Fenced(
        f'topic "{name}" has moved to {to}',
        detail="Nothing was written here.",
        hint=f'Write there: open the app with log="{to}". If the move was a mistake, delete the file {path}.',
        topic=name,
    )
