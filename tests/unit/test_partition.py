"""One partition's writing side: rolling, group commit, several handles, what an interruption leaves."""

from __future__ import annotations

import pytest

from headwater.log.files import Files
from headwater.log.home import Log
from headwater.log.partition import StaleSchema


class Interrupting(Files):
    """Stands for Ctrl-C at the worst moment: in the middle of an append."""

    armed = False

    def write(self, fd, parts, *, label):
        if self.armed and label == "append.write_data":
            self.armed = False
            raise KeyboardInterrupt
        return super().write(fd, parts, label=label)


def test_an_append_that_was_interrupted_is_written_when_it_is_tried_again(tmp_path):
    files = Interrupting()
    topic = Log(tmp_path / "home", files=files).topic("t", "x INT")
    topic.append([{"x": 0}], producer="importer", sequence=0)

    files.armed = True
    with pytest.raises(KeyboardInterrupt):
        topic.append([{"x": 1}], producer="importer", sequence=1)
    topic.append([{"x": 1}], producer="importer", sequence=1)

    assert [row["x"] for row in topic.rows()] == [0, 1]


def test_rows_made_under_an_older_schema_never_land_in_a_segment_of_a_newer_one(log):
    topic = log.topic("t", "x INT", segment_bytes_max=1)
    topic.append([{"x": 0}])
    row = topic.row()
    frames = topic._frames(topic._to_batch([{"x": 1}]), row, 0, None, False)
    log.topic("t", "x INT, y STRING")

    # The segment is full, so this append rolls, and the next segment has the newer schema.
    with pytest.raises(StaleSchema):
        topic.partition(0).append(frames, version=row.version)
    topic.append([{"x": 2, "y": "two"}])

    assert list(topic.rows()) == [{"x": 0, "y": None}, {"x": 2, "y": "two"}]
