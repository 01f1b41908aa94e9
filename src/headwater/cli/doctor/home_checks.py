"""The doctor's checks of a home: disk, rights, format, users.

What it is: ``CHECKS``, functions of the home's path that yield findings.
Invariants: a missing home is no failure; its parent directory is checked instead. The catalog is opened read-only,
without our own modules.
Not here: the data (``headwater check``).
Read next: ``machine_checks.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headwater.cli.doctor.findings import Finding, FindingState, graded

FORMAT_FILE = "headwater.json"
CATALOG = "catalog.sqlite"
FORMAT = 2  # that of log/home.py; a test compares
GIB = 1 << 30
SYNCS = 20
SYNC_WARN_MS = 20.0
SHAKY = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph"}
FORGETFUL = {"tmpfs", "ramfs"}
AHEAD_SECONDS = 60
NEWEST = "SELECT max(committed_us) FROM ticks UNION ALL SELECT max(appended_max) FROM segments"


def disk(home: Path) -> Iterator[Finding]:
    """Space, kind and speed of the disk that the home is on."""
    place = standing(home)
    usage = shutil.disk_usage(place)
    state = graded(usage.free / GIB, warn=1, fail=0.1)
    mend = (
        None
        if state is FindingState.OK
        else "Free some space; retention of topics and `headwater maintain` let old rows go."
    )
    yield Finding("disk space", state, f"{usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f} at {place}", mend)
    kind = file_system(place)
    if kind in SHAKY:
        mend = "Put the home on a local disk: locks of network file systems are not to be trusted."
        yield Finding("file system", FindingState.FAIL, f"{kind}, over the network", mend)
    elif kind in FORGETFUL:
        mend = "Fine for a test; else put the home on a disk."
        yield Finding("file system", FindingState.WARN, f"{kind}: it is empty after a restart of the machine", mend)
    elif kind:
        yield Finding("file system", FindingState.OK, kind)
    if os.access(place, os.W_OK):
        yield _speed(place)


def _speed(place: Path) -> Finding:
    seconds = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(SYNCS):
            began = time.monotonic()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            seconds.append(time.monotonic() - began)
    middle, worst = 1000 * statistics.median(seconds), 1000 * max(seconds)
    slow = middle > SYNC_WARN_MS
    mend = 'Appends with fsync="always" wait so long each; fsync="interval" shares one among many.' if slow else None
    text = f"a write is durable after {middle:.1f} ms (at worst {worst:.1f})"
    return Finding("disk speed", FindingState.WARN if slow else FindingState.OK, text, mend)


def standing(path: Path) -> Path:
    """The path, or the nearest directory above it that is there."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def file_system(path: Path) -> str | None:
    """The kind of the file system that a path is on; None where that is unknown."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return None
    place = str(path.resolve())
    within = [
        (len(point), kind) for point, kind in mounts if place == point or place.startswith(point.rstrip("/") + "/")
    ]
    return max(within)[1] if within else None


def encryption(home: Path) -> Iterator[Finding]:
    """Whether the home, temporary files and the swap are encrypted below, as far as it can be seen from here."""
    from headwater.log.catalog.encrypted_volume import VARIABLE, encryption_of, folders_of, is_required, plain_swaps

    state = FindingState.FAIL if is_required() else FindingState.OK
    told = {FindingState.FAIL: f"{VARIABLE} requires it: mount the volume, or put this on one. docs/encryption.md"}
    if not Path("/proc/self/mountinfo").exists():
        yield Finding("encrypted volume", state, "cannot be seen on this system", told.get(state))
        return
    for what, path in folders_of(home).items():
        found = encryption_of(path)
        name = "encrypted volume" if what == "the home" else "encrypted temporary files"
        if found:
            yield Finding(name, FindingState.OK, f"{found}, at {path}")
        else:
            text = f"none seen at {path}; what encrypts below this machine cannot be seen from it"
            yield Finding(name, state, text, told.get(state))
    for swap in plain_swaps():
        yield Finding("encrypted swap", state, f"{swap} is not encrypted", told.get(state))


def rights(home: Path) -> Iterator[Finding]:
    """Whether this user can write it."""
    place = standing(home)
    if not os.access(place, os.W_OK | os.X_OK):
        mend = f"Give it to this user (chown -R {os.getuid()} {place}), or name another home with --home."
        yield Finding(
            "permissions", FindingState.FAIL if home.exists() else FindingState.WARN, f"{place} cannot be written", mend
        )
        return
    foreign = [path.name for path in place.glob("*") if home.exists() and not os.access(path, os.W_OK)]
    if foreign:
        mend = f"chown -R {os.getuid()} {place}"
        yield Finding("permissions", FindingState.FAIL, f"cannot be written in {place}: {', '.join(foreign[:5])}", mend)
    else:
        yield Finding("permissions", FindingState.OK, f"{place} can be written")


def contents(home: Path) -> Iterator[Finding]:
    """The home's format, its catalog, its newest record, and who has it open."""
    marker = home / FORMAT_FILE
    if not marker.exists():
        yield Finding("home", FindingState.OK, f"none at {home} yet; the first topic makes it")
        return
    try:
        number = json.loads(marker.read_text())["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        mend = f"Restore {marker} from a backup."
        yield Finding("home", FindingState.FAIL, f"{marker} cannot be read: {error}", mend)
        return
    if number > FORMAT:
        mend = "Install the newer headwater that wrote it."
        yield Finding("home", FindingState.FAIL, f"{home} has format {number}; this headwater knows {FORMAT}", mend)
        return
    yield Finding("home", FindingState.OK, f"{home}, format {number}")
    yield from _catalog(home)
    users = in_use(home)
    if users is not None:
        text = f"by process {', '.join(map(str, users))}" if users else "by no process now"
        yield Finding("in use", FindingState.OK, text)


def _catalog(home: Path) -> Iterator[Finding]:
    try:
        db = sqlite3.connect(f"{(home / CATALOG).as_uri()}?mode=ro", uri=True, timeout=2)
        try:
            (checked,) = db.execute("PRAGMA quick_check(1)").fetchone()
            newest = max((row[0] or 0 for row in db.execute(NEWEST)), default=0)
        finally:
            db.close()
    except sqlite3.Error as error:
        mend = "Look who holds it; if it is damaged, `headwater check` says more."
        yield Finding("catalog", FindingState.FAIL, f"{home / CATALOG} cannot be read: {error}", mend)
        return
    if checked != "ok":
        yield Finding("catalog", FindingState.FAIL, f"damaged: {checked}", "Restore catalog.sqlite from a backup.")
    else:
        yield Finding("catalog", FindingState.OK, "sound; `headwater check` verifies the rows too")
    ahead = newest / 1e6 - time.time()
    if ahead > AHEAD_SECONDS:
        mend = "Set the clock: new records would be stamped before older ones."
        yield Finding(
            "clock of the home", FindingState.WARN, f"its newest record is {ahead:,.0f} s in the future", mend
        )


def in_use(home: Path) -> list[int] | None:
    """The other processes that have a file of the home open, as far as this user may see; None: unknown."""
    if not Path("/proc/self/fd").is_dir():
        return None
    within, found = f"{home.resolve()}/", set()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        number = int(folder.parent.name)
        try:
            opened = [os.readlink(link) for link in folder.iterdir()] if number != os.getpid() else []
        except OSError:  # another user's, or gone
            continue
        if any(path.startswith(within) for path in opened):
            found.add(number)
    return sorted(found)


CHECKS = [("disk", disk), ("encrypted volume", encryption), ("permissions", rights), ("home", contents)]
