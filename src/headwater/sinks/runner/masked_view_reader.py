"""Masked view reader: a view as the input of a sink that gets masks in place of personal values.

What it is: ``MaskedViewReader``, a ``ViewReader`` whose rows and changes are those of a reader without any right.
Invariants: nothing unmasked leaves it. Other masks are another version of the view, so the sink takes a full copy when
a declaration changes. Rows are told apart by the key of the view, so a key is masked by a hash or not at all.
Not here: what is personal (``views/privacy/personal_data.py``), masks (``log/schema/column_masks.py``).
Read next: ``views/serving/view_reader.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import SinkRefused
from headwater.log.schema.column_masks import ColumnMasks, masked_type
from headwater.log.schema.ddl import parse_view_ddl
from headwater.log.schema.personal_columns import Mask
from headwater.views.privacy.personal_data import PersonalData, PrivacyRights
from headwater.views.serving.deliveries import Delivery
from headwater.views.serving.view_reader import ViewHead, ViewReader
from headwater.views.state.algebra import consolidate

if TYPE_CHECKING:
    from headwater.clock import Clock
    from headwater.views.serving.committed_changes import CommittedChanges
    from headwater.views.state.manifest import Manifest

NOBODY = PrivacyRights()


class MaskedViewReader(ViewReader):
    """The committed rows and changes of one view, masked."""

    def __init__(
        self,
        view: str,
        committed: CommittedChanges,
        data: PersonalData,
        masks: ColumnMasks,
        *,
        epoch: Callable[[], int],
        clock: Clock | None = None,
    ) -> None:
        super().__init__(view, committed, epoch=epoch, clock=clock)
        self._data = data
        self._column_masks = masks

    def head_at(self, manifest: Manifest) -> ViewHead:
        """The view at the tick of a manifest, as the sink gets it."""
        head = super().head_at(manifest)
        masks = self._masks(head.schema)
        fields = [field.with_nullable(True) if field.name in masks else field for field in head.schema]
        return replace(head, schema=pa.schema(fields))

    @contextmanager
    def rows(self) -> Iterator[tuple[ViewHead, Iterator[pa.RecordBatch]]]:
        """All rows at the last committed tick, masked; refused where no key would be left to tell them apart."""
        with super().rows() as (head, batches):
            masks = self._masks(head.schema)
            for name in head.key:
                if name in masks and masked_type(head.schema.field(name).type, masks[name]) != "hash":
                    raise SinkRefused(
                        f'a masked copy of view "{self.view}" has no key: {name} would be masked by {masks[name]}',
                        hint=f'Declare mask="hash" for what {name} comes from, or let the view have another key.',
                        view=self.view,
                        column=name,
                    )
            yield head, batches

    def _masks(self, schema: pa.Schema) -> dict[str, Mask]:
        return self._data.of(self.view).masks(schema.names, NOBODY)

    def _version(self, about: Any) -> str:
        masks = self._masks(parse_view_ddl(about["columns"]))
        return super()._version(about) + (f"/{sorted(masks.items())}" if masks else "")

    def changes(self, after: int, head: ViewHead, *, rows_max: int, ticks_max: int) -> Delivery | None:
        """The changes after a tick, masked; None when they are no longer kept, or of other masks."""
        found = super().changes(after, head, rows_max=rows_max, ticks_max=ticks_max)
        if found is None:
            return None
        changes = self._column_masks.table(found.changes, self._masks(head.schema))
        return replace(found, changes=consolidate(changes))  # what was told apart by a masked value alone is one

    def _batches(self, manifest: Manifest) -> Iterator[pa.RecordBatch]:
        for batch in super()._batches(manifest):
            yield self._column_masks.batch(batch, self._masks(batch.schema))
