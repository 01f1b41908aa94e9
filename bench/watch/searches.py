"""``python -m bench.watch.searches``: stored searches beside brute force and Lucene's monitor.

What it is: batches of documents matched with the index of queries, with a compiled evaluator of each query over each
document, and with Lucene's monitor in a process of its own.
Invariants: the same searches and documents for all, one thread each, seconds of that thread's processor time; the
matches of a batch are the same, or the benchmark ends with an error. Lucene is warmed up by as many batches as are
measured, and the better of its ways counts: documents one by one or together, one set of terms for each query or two.
Not here: the rows (``search_workload.py``), the monitor (``peers/SearchMonitor.java``). Read next: those.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench import report
from bench.peer_servers import PeerUnavailable, tools_directory
from bench.report import Measurement
from bench.watch import search_workload
from bench.watch.search_workload import BenchSearch
from headwater.searches.query_evaluator import compiled
from headwater.searches.query_index import QueryIndex, StoredSearch
from headwater.searches.search_columns import SearchColumns
from headwater.searches.segments.document_batch import DocumentBatch
from headwater.searches.text_analysis import TextAnalyser

OUT = Path("bench/out/watch_searches.json")
BRUTE_LEAST, LUCENE_LEAST = 20.0, 2.0
JAVA_LEAST = 21  # of Lucene 10
WAYS = (("1", "term"), ("1000", "term"), ("1000", "multipass"))
SOURCE = Path(__file__).parent / "peers" / "SearchMonitor.java"


@dataclass(frozen=True)
class MatchedBatch:
    """One batch: the thread's processor seconds, and what was found."""

    seconds: float
    matches: int
    checksum: int


def checksum(documents: list[int], searches: list[int]) -> int:
    """The same for the same pairs of documents and searches, in whatever order."""
    return sum((document + 1) * (search + 1) for document, search in zip(documents, searches, strict=True))


def columns() -> SearchColumns:
    """The documents' columns."""
    return SearchColumns(search_workload.SCHEMA, ["title", "body"])


def by_index(found: list[BenchSearch], batches: list[pa.Table]) -> tuple[float, list[MatchedBatch]]:
    """Seconds to put all searches, and the batches."""
    index = QueryIndex(columns())
    began = time.thread_time()
    for each in found:
        index.put(StoredSearch(each.id, each.query))
    put_seconds = time.thread_time() - began
    assert not index.broken
    measured = []
    for table in batches:
        began = time.thread_time()
        matches = index.match(table)
        seconds = time.thread_time() - began
        numbers = [int(index.search(int(slot)).id[1:]) for slot in matches.slots]
        measured.append(MatchedBatch(seconds, len(numbers), checksum(matches.documents.tolist(), numbers)))
    return put_seconds, measured


def by_brute_force(found: list[BenchSearch], table: pa.Table) -> MatchedBatch:
    """Every query evaluated over every document of a table."""
    index = QueryIndex(columns())
    evaluators = [compiled(index.reader.read(each.query).node) for each in found]
    documents, searches = [], []
    began = time.thread_time()
    batch = DocumentBatch(table, columns(), TextAnalyser("default"))
    for place in range(table.num_rows):
        document = batch.document(place)
        for number, evaluator in enumerate(evaluators):
            if evaluator(document):
                documents.append(place)
                searches.append(number)
    seconds = time.thread_time() - began
    return MatchedBatch(seconds, len(documents), checksum(documents, searches))


def java() -> Path:
    """A Java that is new enough for Lucene, with its compiler: of HEADWATER_BENCH_JAVA, or of the usual place."""
    given = os.environ.get("HEADWATER_BENCH_JAVA")
    places = [Path(given)] if given else sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)
    for place in places:
        said = place / "release"
        version = re.search(r'JAVA_VERSION="(\d+)', said.read_text()) if said.exists() else None
        if version is not None and int(version[1]) >= JAVA_LEAST and (place / "bin" / "javac").exists():
            return place / "bin"
    raise PeerUnavailable(f"Lucene 10 needs a JDK {JAVA_LEAST} or newer: set HEADWATER_BENCH_JAVA to its folder")


def by_lucene(folder: Path, batches: int, way: tuple[str, str]) -> list[MatchedBatch]:
    """The batches that the files of a folder hold, by the monitor."""
    jars = tools_directory() / "lucene-monitor"
    if not jars.exists():
        raise PeerUnavailable(f"no {jars} (run bench/watch/setup.sh in a checkout)")
    programs, classes = java(), folder / "classes"
    path = f"{classes}:{jars}/*"
    subprocess.run([programs / "javac", "-d", classes, "-cp", path, SOURCE], check=True, capture_output=True)
    command = [
        programs / "java",
        "-XX:+UseSerialGC",
        "-Xmx2g",
        "-cp",
        path,
        "SearchMonitor",
        folder,
        str(batches),
        *way,
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in said.splitlines() if line.startswith("batch ")]
    return [MatchedBatch(float(spent), int(matches), int(total)) for _, spent, _, matches, total in lines]


def measure(count: int, documents: int, rounds: int, brute_documents: int) -> list[Measurement]:
    """All contenders."""
    found = search_workload.searches(count)
    batches = [search_workload.documents(documents, seed=seed) for seed in range(2 * rounds)]
    put_seconds, ours = by_index(found, batches)
    few = batches[0].slice(0, brute_documents)
    brute = by_brute_force(found, few)
    _, same = by_index(found, [few])
    if (same[0].matches, same[0].checksum) != (brute.matches, brute.checksum):
        raise SystemExit(f"the index and brute force differ: {same[0]} {brute}")
    rate = documents / statistics.median(each.seconds for each in ours[rounds:])
    brute_rate = brute_documents / brute.seconds
    lines = [
        Measurement(f"put, {count:,} searches", round(count / put_seconds, 1), "searches/s"),
        Measurement(f"match, batches of {documents:,}", round(rate, 1), "documents/s"),
        Measurement("matches of a document", round(statistics.mean(each.matches for each in ours) / documents, 1), ""),
        Measurement("brute force", round(brute_rate, 2), "documents/s"),
        _bar("beside brute force", rate / brute_rate, BRUTE_LEAST),
    ]
    lucene: dict[str, float] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            search_workload.write_files(Path(folder), found, batches)
            for way in WAYS:
                theirs = by_lucene(Path(folder), len(batches), way)
                if [(e.matches, e.checksum) for e in theirs] != [(e.matches, e.checksum) for e in ours]:
                    raise SystemExit(f"the index and Lucene differ: {ours} {theirs}")
                lucene[" ".join(way)] = documents / statistics.median(each.seconds for each in theirs[rounds:])
    except PeerUnavailable as missing:
        lines.append(Measurement(f"Lucene's monitor: not available: {missing}", None, ""))
    lines += [
        Measurement(f"Lucene's monitor, {way} documents and presearcher", round(of_way, 1), "documents/s")
        for way, of_way in lucene.items()
    ]
    return [*lines, _bar("beside Lucene's monitor", rate / max(lucene.values()) if lucene else None, LUCENE_LEAST)]


def _bar(name: str, ratio: float | None, least: float) -> Measurement:
    value = None if ratio is None else round(ratio, 2)
    return Measurement(name, value, "x", least, ratio is not None and ratio >= least)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=100_000)
    parser.add_argument("--documents", type=int, default=1_000, help="of a batch")
    parser.add_argument("--rounds", type=int, default=5, help="batches that are measured, after as many that are not")
    parser.add_argument("--brute", type=int, default=20, help="documents for brute force")
    asked = parser.parse_args()
    pa.set_cpu_count(1)
    lines = measure(asked.searches, asked.documents, asked.rounds, asked.brute)
    table = Table("what", "value", "unit", "bar")
    for line in lines:
        held = "" if line.holds is None else f"{'holds' if line.holds else 'NOT HELD'} (≥ {line.bar:g})"
        table.add_row(line.name, "–" if line.value is None else f"{line.value:,.2f}", line.unit, held)
    Console(width=150).print(table)
    report.write(lines, OUT)


if __name__ == "__main__":
    main()
