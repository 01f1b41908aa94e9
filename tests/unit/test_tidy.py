"""The source keeps its own rules.

What it is: the rules of CONTRIBUTING.md that a machine can check, over every file of the repository: length,
docstrings, names, import direction, who may touch files, what must never be committed.
Invariants: a rule that fails names each file and line. Nothing here imports the package, except to look at
its public names.
Not here: formatting, lint and types (``make check``); errors and docs (``test_errors.py``, ``test_docs.py``).
Read next: ``CONTRIBUTING.md``.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
LINES_MAX = 500

# The names at the root, in one place. Adding one is a decision. Inlets, which the docs
# use as hw.inlets beside capture and sinks, was once hidden from __all__ to keep to a dozen, which lost the name. What
# calls take is beside them: Metadata, Personal, and the positions gtid and lsn. Event sourcing has its own names in
# aggregates.
PUBLIC_NAMES = [
    "App",
    "Batch",
    "HeadwaterError",
    "Log",
    "Metadata",
    "Personal",
    "Producer",
    "Token",
    "Topic",
    "__version__",
    "aggregates",
    "capture",
    "clock",
    "errors",
    "gtid",
    "inlets",
    "lsn",
    "pattern",
    "sinks",
]
PUBLIC_NAMES_MAX = 19

# Who may import whom, inside the package: data walks through once. A part may always import itself.
GROUND = {"backoff", "errors", "clock", "durations", "hints", "event", "notebook", "settings"}
LOG = GROUND | {"kafka", "log", "log_address"}
DERIVED = {"capture", "federation", "inlets", "views", "aggregates", "searches", "sinks"}
BUILT = (
    LOG
    | DERIVED
    | {
        "encryption",
        "objects",
        "patterns",
        "app",
        "app_aggregates",
        "app_declarations",
        "app_file",
        "app_privacy",
        "app_processes",
        "app_searches",
        "app_services",
        "sync",
        "upkeep",
    }
)
MAY_IMPORT = {
    **dict.fromkeys(GROUND, GROUND),
    "log": GROUND,
    "patterns": GROUND,
    "encryption": GROUND,
    "kafka": GROUND | {"log"},
    "log_address": GROUND | {"kafka", "log"},
    "objects": LOG,
    **dict.fromkeys(DERIVED, LOG),
    "federation": LOG | {"capture"},  # a table has one type, captured or attached
    "inlets": LOG | {"capture"},  # Debezium's envelope has one reader
    "views": LOG | {"federation", "objects", "patterns", "searches"},
    "aggregates": LOG | {"sinks", "views"},  # a constraint follows a view's committed changes, as a sink
    "sinks": LOG | {"objects", "views"},  # they read what views have committed; never Spark
    "app_services": LOG
    | DERIVED
    | {"app_declarations", "app_processes", "encryption", "upkeep"},  # the app itself only by name
    "app_aggregates": LOG | {"aggregates", "views"},
    "app_processes": LOG | {"aggregates", "app_aggregates", "sinks", "views"},
    "app_privacy": LOG | {"app_searches", "sinks", "views"},
    "app_searches": LOG | {"app_processes", "searches", "views"},
    "app_declarations": LOG
    | DERIVED
    | {"app_aggregates", "app_privacy", "app_services", "encryption", "objects", "patterns", "upkeep"},
    "app": LOG | DERIVED | {"app_declarations", "encryption", "upkeep"},
    "app_file": {"errors", "app", "app_declarations"},
    "sync": LOG | DERIVED | {"app"},
    "upkeep": LOG | DERIVED | {"encryption", "objects"},
    "testing": BUILT,
    "server": BUILT | {"__init__"},
    "demo": BUILT | {"__init__", "cli", "server", "testing"},  # nothing of the library imports it; its command is late
    "cli": BUILT | {"__init__", "demo", "server", "testing"},
    "__init__": BUILT,
    "__main__": {"cli"},
}

# Who may import whom between the rooms of a package, when modules are loaded (not for types only). What lies directly
# in the package (what users hold, and small shared words) may be imported by every room and imports all of them.
ROOMS = {
    "log": {
        "schema": set(),
        # One layer: segments are entered in the catalog, and frames carry the numbers of cuts and commits.
        "storage": {"schema", "catalog", "commits"},
        "catalog": {"schema", "storage", "commits"},
        "commits": {"schema", "storage", "catalog"},
        "event_time": {"schema", "storage", "catalog"},
        "groups": {"schema", "storage", "catalog", "commits"},
        "proof": {"schema", "storage", "catalog", "commits"},
        "maintenance": {"schema", "storage", "catalog", "commits", "event_time", "groups", "proof"},
        "erasure": {"schema", "storage", "catalog", "commits", "groups", "maintenance", "proof"},
    },
    "views": {
        "compiler": set(),
        "privacy": {"compiler"},
        "spark": {"compiler", "source"},
        "source": {"spark"},
        "state": {"compiler", "spark"},
        "stages": {"compiler", "spark", "state"},
        "event_time": {"compiler", "spark", "source", "state", "stages"},
        "tick": {"compiler", "spark", "state", "stages", "event_time", "source"},
        "serving": {"compiler", "privacy", "spark", "state", "stages", "event_time", "tick"},
        "lifecycle": {"compiler", "spark", "state", "stages", "event_time", "tick", "serving"},
        "provenance": {"compiler", "privacy", "spark", "state", "stages", "event_time", "tick", "serving"},
    },
    "views/compiler": {
        "sql": set(),
        "frontend": {"sql"},
        "algebra": {"sql", "frontend"},
        "operators": {"sql", "frontend", "algebra"},
    },
    "kafka": {"values": set()},
    "patterns": {"clause": set(), "expressions": {"clause"}, "search": {"clause", "expressions"}},
    "aggregates": {"events": set(), "recorder": {"events"}, "processes": {"events"}, "services": {"events"}},
    "sinks": {"runner": set(), "kafka": {"runner"}, "postgres": {"runner"}},
    "capture": {"mysql": set(), "postgres": set(), "debezium": {"mysql"}},  # MySQL's and Debezium's dates are alike
    "inlets": {"amqp": set(), "kafka": set(), "webhook": set(), "statsd": set(), "zeromq": set()},
    "server": {
        "http": set(),
        "engine": {"http"},
        "queries": {"http", "engine"},
        "commands": {"http", "engine", "queries", "status"},
        "realtime": {"http"},
        "status": {"http"},
        "routes": {"http", "engine", "queries", "commands", "realtime", "status"},
    },
}
MODULES_MAX = 16  # in one folder: more become rooms

FORBIDDEN_MODULES = {"utils", "util", "core", "common", "base", "helpers", "queue", "types", "logging", "exceptions"}
OS_WRITES = {"fdatasync", "fsync", "ftruncate", "pwrite", "truncate", "write", "writev"}
OS_CHANGES = OS_WRITES | {"remove", "rename", "replace", "rmdir", "unlink"}
PATH_CHANGES = {"rename", "rmdir", "touch", "unlink", "write_bytes", "write_text"}

# Addresses that committed files may name. Package indexes and mirrors are the machine's business, not ours.
KNOWN_HOSTS = {
    "127.0.0.1",
    "localhost",
    "example.com",
    "www.apache.org",
    "keepachangelog.com",
    "semver.org",
    "c2sp.org",
    "www.w3.org",  # the name of SVG
}


def ignored_names() -> set[str]:
    return {line.strip().strip("/").split("/")[-1] for line in (ROOT / ".gitignore").read_text().splitlines() if line}


@cache
def committed_files() -> tuple[Path, ...]:
    ignored = ignored_names() | {".git"}

    def walk(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            if path.name in ignored or path.name.endswith(".egg-info"):
                continue
            if path.is_dir():
                yield from walk(path)
            elif path.name != ".git":
                yield path

    return tuple(walk(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Facts:
    """What the rules ask of a module's syntax tree, which is large: kept in its place."""

    docstring: str
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    imports_for_types: frozenset[int]  # the lines of those under TYPE_CHECKING
    classes: tuple[str, ...]
    changes: tuple[tuple[int, str], ...]  # where a file is changed, and by which call


@cache
def facts_of(path: Path) -> Facts:
    tree = ast.parse(text_of(path))
    imports, for_types, changes = [], set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for_types |= {inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.ImportFrom)}
        elif isinstance(node, ast.Attribute) and changes_a_file(node):
            changes.append((node.lineno, ast.unparse(node)))
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return Facts(ast.get_docstring(tree) or "", tuple(imports), frozenset(for_types), classes, tuple(changes))


def python_files(*folders: str) -> list[Path]:
    return [path for path in committed_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]


def package_modules() -> list[Path]:
    return python_files("src")


def where(path: Path, line: int | None = None) -> str:
    return f"{path.relative_to(ROOT)}" + (f":{line}" if line else "")


def matches(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    found = []
    for path in files:
        try:
            text = text_of(path)
        except UnicodeDecodeError:  # a picture or the like
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            found += [f"{where(path, number)}: {match.group(0)}" for match in pattern.finditer(line)]
    return found


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports, at its top or late, with the line; relative imports made absolute."""
    package = path.relative_to(ROOT / "src").with_suffix("").parts
    for node in facts_of(path).imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            # from .x import y, in headwater.log.topic: one dot is headwater.log.
            above = ".".join(package[: len(package) - node.level]) if node.level else ""
            module = ".".join(part for part in (above, node.module) if part)
            yield node.lineno, module
            if module == "headwater":  # "from headwater import log" imports headwater.log
                for alias in node.names:
                    yield node.lineno, f"headwater.{alias.name}"


def part_of(module: str) -> str:
    """The part of the package a module belongs to: ``headwater.log.topic`` is in ``log``."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def known_part(module: str) -> str:
    """As ``part_of``; a public name such as ``headwater.Log`` belongs to the root."""
    part = part_of(module)
    return part if part in MAY_IMPORT else "__init__"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def test_the_package_was_found() -> None:
    modules = {where(path) for path in package_modules()}

    assert {"src/headwater/errors.py", "src/headwater/log/storage/files.py"} <= modules


def test_no_module_is_too_long_to_read_at_once() -> None:
    files = python_files("src", "tests", "bench", "examples")

    lengths = {where(path): len(text_of(path).splitlines()) for path in files}

    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_every_module_says_what_it_is_in_more_than_one_sentence() -> None:
    files = python_files("src", "bench", "examples")

    short = []
    for path in files:
        if len(re.findall(r"[.;:](?=\s|$)", facts_of(path).docstring)) < 2:
            short.append(where(path))

    assert short == []


def test_modules_are_named_by_a_noun_of_the_domain() -> None:
    files = python_files("src", "bench", "examples")

    assert [where(path) for path in files if path.stem in FORBIDDEN_MODULES] == []
    assert [where(path) for path in files if path.parent.name in FORBIDDEN_MODULES] == []


def test_every_part_of_the_package_has_its_place_in_the_import_direction() -> None:
    parts = {part_of(module_name(path)) for path in package_modules()}

    assert parts - set(MAY_IMPORT) == set(), "add the new part to MAY_IMPORT above"


def test_imports_go_one_way() -> None:
    wrong = []
    for path in package_modules():
        part = part_of(module_name(path))
        for line, module in imported_modules(path):
            if module.split(".")[0] != "headwater" or module == "headwater":
                continue
            target = known_part(module)
            if target != part and target not in MAY_IMPORT.get(part, set()):
                wrong.append(f"{where(path, line)}: {part} imports {module}")

    assert wrong == []


def imported_when_loaded(path: Path) -> Iterator[tuple[int, str]]:
    """Every module of the package that a file imports other than for types, with the line; late imports too."""
    facts = facts_of(path)
    for node in facts.imports:
        if isinstance(node, ast.ImportFrom) and node.lineno not in facts.imports_for_types and node.module:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


@pytest.mark.parametrize("package", ROOMS)
def test_imports_between_the_rooms_of_a_package_go_one_way(package: str) -> None:
    rooms, folder = ROOMS[package], PACKAGE / package
    dotted = "headwater." + package.replace("/", ".") + "."

    wrong = []
    for path in folder.rglob("*.py"):
        room = path.relative_to(folder).parts[0]
        for line, module in imported_when_loaded(path):
            target = module.removeprefix(dotted).split(".")[0] if module.startswith(dotted) else None
            if room in rooms and target in rooms and target != room and target not in rooms[room]:
                wrong.append(f"{where(path, line)}: {room} imports {module}")

    assert wrong == []
    folders = {each.name for each in folder.iterdir() if (each / "__init__.py").is_file()}
    assert folders == set(rooms), "each room has its line in ROOMS above"


def test_a_folder_holds_few_enough_modules_to_be_taken_in_at_once() -> None:
    named = [path for path in package_modules() if path.name not in ("__init__.py", "__main__.py")]
    held = Counter(where(path.parent) for path in named)

    assert {folder: count for folder, count in held.items() if count > MODULES_MAX} == {}


def test_modules_and_classes_have_names_of_their_own() -> None:
    modules = Counter(path.stem for path in package_modules() if path.name != "__init__.py")
    classes = Counter(name for path in package_modules() for name in facts_of(path).classes if not name.startswith("_"))

    assert [name for name, count in modules.items() if count > 1] == []
    assert [name for name, count in classes.items() if count > 1] == []


def test_files_that_docstrings_name_are_there() -> None:
    """A name with folders is looked for from the root, the package and the file's own folder; one without, anywhere."""
    pattern = re.compile(r"``((?:[\w.-]+/)*[\w-]+\.(?:py|md|js|sh|sql))``")
    known = {path.name for path in committed_files()}

    missing = []
    for path in python_files("src", "tests", "bench", "examples", "tools"):
        text = text_of(path)
        for number, line in enumerate(text.splitlines(), start=1):
            for name in pattern.findall(line):
                places = (ROOT, PACKAGE, *path.parents[: len(path.relative_to(ROOT).parts) - 1])
                if name not in known and not any((place / name).exists() for place in places):
                    missing.append(f"{where(path, number)}: {name}")

    assert missing == []


def test_only_views_import_pyspark() -> None:
    wrong = []
    for path in package_modules():
        if part_of(module_name(path)) == "views":
            continue
        for line, module in imported_modules(path):
            if module.split(".")[0] in {"pyspark", "py4j"}:
                wrong.append(f"{where(path, line)}: imports {module}")

    assert wrong == []


def test_importing_headwater_imports_neither_spark_nor_pandas() -> None:
    code = "import sys, json, headwater; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "src")

    assert {"pyspark", "py4j", "pandas", "typer", "rich"} & set(json.loads(run.stdout)) == set()


def test_the_public_names_are_few_sorted_and_pinned() -> None:
    import headwater

    assert headwater.__all__ == PUBLIC_NAMES
    assert sorted(PUBLIC_NAMES) == PUBLIC_NAMES
    assert len(PUBLIC_NAMES) <= PUBLIC_NAMES_MAX
    assert [name for name in PUBLIC_NAMES if not hasattr(headwater, name)] == []


def test_only_the_files_module_changes_files_of_the_log() -> None:
    wrong = []
    for path in package_modules():
        if PACKAGE / "log" not in path.parents or path.name == "files.py":
            continue
        wrong += [f"{where(path, line)}: {call}" for line, call in facts_of(path).changes]

    assert wrong == []


def changes_a_file(node: ast.Attribute) -> bool:
    owner = ast.unparse(node.value)
    if owner == "os":
        return node.attr in OS_CHANGES
    # path.unlink() goes around Files as much as os.unlink() does; files.unlink(path) is the way.
    return node.attr in PATH_CHANGES and not owner.endswith("files")


def test_nothing_is_left_for_later_in_the_source() -> None:
    pattern = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X{3})\b")

    assert matches(pattern, list(committed_files())) == []


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    pattern = re.compile(r"(?<![\w.~$}/*-])/(?:home|root|tmp|Users|work)/[\w.]+")

    assert matches(pattern, list(committed_files())) == []


def test_no_file_names_a_registry_or_mirror() -> None:
    address = re.compile(r"\b(?:https?|ftp)://(?:[^\s/@]*@)?([\w.-]+)")
    option = re.compile(r"(?<!\w)(--(?:extra-)?index-url|--find-links|--trusted-host)\b")
    files = [path for path in committed_files() if path.resolve() != Path(__file__).resolve()]

    hosts = [hit for hit in matches(address, files) if hit.split("://")[1].split("@")[-1] not in KNOWN_HOSTS]

    assert hosts == []
    assert matches(option, files) == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    pattern = re.compile(r"\b(?:pytest|mark|unittest)\.(?:skip\w*|xfail|importorskip|expectedFailure)")

    assert matches(pattern, python_files("tests")) == []


def test_the_files_that_are_given_out_first_exist() -> None:
    from tests.conftest import LONGEST_FIRST, SPARK, TOGETHER

    named = [f"tests/{name}" for name in LONGEST_FIRST] + [*SPARK, *TOGETHER]

    assert [name for name in named if not any(ROOT.glob(f"{name}*"))] == []


def test_what_is_pinned_can_be_installed_with_the_oldest_python_that_we_name() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    wanted = {str(each.metadata["Name"]): each.metadata["Requires-Python"] for each in distributions()}

    assert {name: python for name, python in wanted.items() if f"{named}.0" not in SpecifierSet(python or "")} == {}
