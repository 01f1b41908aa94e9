"""Kernel drops: datagrams that the kernel dropped because a socket's buffer was full.

What it is: ``of`` reads the number from ``/proc/net/udp``.
Invariants: it never fails; where the number is not available (macOS) it is None.
Not here: our own drops (``statsd_inlet.py``). Read next: ``statsd_inlet.py``.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

INODE, DROPS = 9, 12  # columns of /proc/net/udp


def of(receiver: socket.socket) -> int | None:
    """The datagrams dropped so far for this socket.

    >>> with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    ...     receiver.bind(("127.0.0.1", 0))
    ...     of(receiver) in (0, None)
    True
    """
    table = "udp6" if receiver.family == socket.AF_INET6 else "udp"
    try:
        inode = str(os.fstat(receiver.fileno()).st_ino)
        lines = Path("/proc/self/net", table).read_text().splitlines()[1:]
    except OSError:
        return None
    return drops_in(lines, inode)


def drops_in(lines: list[str], inode: str) -> int | None:
    """The number in the line of one socket.

    >>> drops_in(["1: 0100007F:1FBD 00000000:0000 07 0:0 00:0 0 0 0 4711 2 0 17"], "4711")
    17
    """
    for line in lines:
        cells = line.split()
        if len(cells) > DROPS and cells[INODE] == inode and cells[DROPS].isdigit():
            return int(cells[DROPS])
    return None
