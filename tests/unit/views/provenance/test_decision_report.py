"""Decision reports: what stands in them, as text and nothing else, and what is masked."""

from __future__ import annotations

import datetime as dt
import html.parser
import re

import pytest

import headwater as hw
from headwater.errors import Misuse
from headwater.log.schema.column_masks import ColumnMasks
from headwater.views.privacy.personal_data import SEES_ALL, PersonalData, PrivacyRights
from headwater.views.provenance.decision_report import decision_report, masked, masks_for
from headwater.views.provenance.provenance import InputEvent, Precision, Provenance, ProvenanceInput, ProvenanceStep

AT = dt.datetime(2026, 5, 1, 12, 30, tzinfo=dt.UTC)
NASTY = "<script>alert('x')</script> | `a` | **b** [c](d)\n# e & <img src=x>"
SQL = "SELECT id, note FROM loans WHERE cents < 5 -- ```\n"


def provenance(row: dict[str, object]) -> Provenance:
    event = InputEvent("loans", 0, 17, AT, "importer", "anna", None, None, "r-1", row)
    gone = InputEvent("loans", 1, 3, None, None, None, None, None, None, row, weight=-1)
    step = ProvenanceStep("refused", "refused", "linear", "filter", "the rows that pass", Precision.KEY, ("loans",))
    inputs = (ProvenanceInput("loans", 1234, (event, gone), lost=2),)
    queries = (("refused", SQL), ("scored", None))
    return Provenance("refused", 7, AT, ({**row, "id": 4711},), (step,), inputs, queries=queries)


class Text(html.parser.HTMLParser):
    """What a browser shows, and which elements there are."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_row_rule_records_and_times_and_no_markup_of_the_data():
    page = decision_report(provenance({"note": NASTY, "cents": 3, "more": None}), form="html", made_at=AT)

    shown = Text()
    shown.feed(page)
    for said in (
        "refused",
        "4711",
        SQL.strip(),
        "scored is computed by a program",
        "loans[0]@17",
        "anna",
        "r-1",
        NASTY,
        "2026-05-01 12:30:00 UTC",
        "tick 7",
        "1,230 more are not shown here",
        "2 more rows",
        "-1",
    ):
        assert re.sub(r"\s+", " ", said) in re.sub(r"\s+", " ", shown.text), said
    assert not shown.tags & {"script", "img", "link", "a", "iframe", "b", "strong"}
    assert "http" not in page


def test_markdown_has_the_same_and_its_fences_hold():
    text = decision_report(provenance({"note": NASTY}), form="md", made_at=AT)

    assert f"````sql\n{SQL.strip()}\n````" in text
    assert "<script" not in text.replace("\\<script", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in rows if "loans\\[" in line}
    assert len(cells) == 1  # a value's own bar begins no cell


def test_another_form_is_refused():
    with pytest.raises(Misuse, match="cannot be written as 'pdf'"):
        decision_report(provenance({}), form="pdf", made_at=AT)


@pytest.mark.parametrize("views_known", [True, False])
def test_columns_are_masked_as_for_the_reader(tmp_path, views_known):
    with hw.App("bank", home=tmp_path / "home") as app:
        app.table(
            "loans",
            "id BIGINT, note STRING, city STRING",
            key="id",
            privacy={
                "id": hw.Personal("user"),
                "note": hw.Personal("user", by="id", mask="redact"),
                "city": hw.Personal("user", by="id", purpose="billing", mask="null"),
            },
        )
        app.view("refused", "SELECT id, note, city FROM loans")
        data = app.personal_data if views_known else PersonalData(lambda: app.log, list)
        found = provenance({"note": "marker", "city": "marker"})

        def written(rights: PrivacyRights) -> tuple[str, Provenance]:
            masks = masks_for(found, data, rights, views_known=views_known)
            shown = masked(found, masks, ColumnMasks(b"secret"))
            return decision_report(shown, form="html", made_at=AT), shown

        nobody, shown = written(PrivacyRights())
        billing, _ = written(PrivacyRights(purposes=frozenset({"billing"})))
        every, _ = written(SEES_ALL)

    assert "marker" not in nobody
    assert "Masked for the reader: " in nobody
    assert "loans.city" in nobody
    assert shown.inputs[0].events[0].row == {"note": "***", "city": None}
    # Without the app's file every column of the view is as personal as all that is behind it.
    hidden = {"note": None, "city": None, "id": None}
    assert shown.rows == (({"note": "***", "city": None, "id": 4711} if views_known else hidden),)
    assert billing.count("marker") == (3 if views_known else 2)
    assert "Masked" not in every
