"""What a Mac answers: its `ps` and `sysctl` as programs, its sockets and kqueues as objects.

The formats are those of Apple's and FreeBSD's sources: `ps -o` takes all behind the first `=` of an argument for a
header, and cuts lines at 79 columns without `-ww`; `struct xucred` has 76 bytes.
"""

import errno
import json
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PS = """#!{python}
import json, os, pathlib, sys
rows = json.loads(pathlib.Path({table!r}).read_text())
words, columns, pids, wide = sys.argv[1:], [], None, False
while words:
    word = words.pop(0)
    if word == "-o":
        text = words.pop(0)
        while text:
            keyword = text.partition(",")[0]
            if "=" in keyword:
                name, _, header = text.partition("=")
                columns.append((name, header))
                break
            columns.append((keyword, keyword.upper()))
            text = text.partition(",")[2]
    elif word == "-p":
        pids = words.pop(0).split(",")
    elif word.startswith("-") and set(word[1:]) <= set("axw"):
        wide = word.count("w") > 1
    else:
        sys.exit("ps: illegal option -- " + word)
started = os.environ.get("LC_ALL") == "C"
def value(row, name):
    text = str(row[name])
    if name == "lstart" and not started:
        text = "Mo 30 Nov 05:43:05 2026"
    return text.ljust(16) if name in ("comm", "lstart") else text.ljust(4) if name == "stat" else text.rjust(5)
shown = [row for row in rows if pids is None or str(row["pid"]) in pids]
lines = [" ".join(value(row, name) for name, _ in columns) for row in shown]
if any(header for _, header in columns):
    lines.insert(0, " ".join(header or name for name, header in columns))
print(*(line if wide else line[:79] for line in lines), sep="\\n")
sys.exit(not shown)
"""
SYSCTL = """#!/bin/sh
case "$2" in
{cases}
*) echo "sysctl: unknown oid '$2'" >&2; exit 1 ;;
esac
"""
COLUMNS = ("pid", "ppid", "pgid", "tpgid", "stat", "comm", "lstart")


def write_programs(folder: Path, processes: Sequence[Sequence[object]], settings: Mapping[str, int]) -> None:
    """Write `ps` and `sysctl` into *folder*: *processes* has rows of `COLUMNS`, *settings* the kernel's numbers."""
    table = folder / "processes.json"
    table.write_text(json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in processes]))
    cases = "\n".join(f'{name}) echo "{value}" ;;' for name, value in settings.items())
    programs = {"ps": PS.format(python=sys.executable, table=str(table)), "sysctl": SYSCTL.format(cases=cases)}
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


class MacSocket:
    """A connected unix socket of user *uid*'s process *pid*; 0: a BSD that does not report it."""

    def __init__(self, uid: int, pid: int) -> None:
        self._uid, self._pid = uid, pid

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        match (level, option, size):
            case (0, 1, 76):  # SOL_LOCAL, LOCAL_PEERCRED, sizeof(struct xucred)
                return struct.pack("=IIhxx16I", 0, self._uid, 2, 20, 12, *[0] * 14)
            case (0, 2, 4) if self._pid:  # LOCAL_PEERPID
                return struct.pack("=i", self._pid)
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")


class MacSelect:
    """The part of the module `select` that only a Mac has; it knows the processes *running*."""

    KQ_FILTER_PROC, KQ_EV_ADD, KQ_NOTE_EXIT = -5, 0x1, 0x80000000

    def __init__(self, running: Sequence[int]) -> None:
        self.running = running
        self.queues: list[MacQueue] = []

    def kqueue(self) -> "MacQueue":
        self.queues.append(MacQueue(self))
        return self.queues[-1]

    def kevent(self, *fields: int) -> tuple[int, ...]:
        return fields


class MacQueue:
    def __init__(self, select: MacSelect) -> None:
        self._select = select
        self.watched: list[tuple[int, ...]] = []
        self.is_closed = False

    def control(self, changes: Sequence[tuple[int, ...]], most: int) -> list[Any]:
        assert most == 0
        for change in changes:
            if change[0] not in self._select.running:
                raise ProcessLookupError(errno.ESRCH, "No such process")
            self.watched.append(change)
        return []

    def fileno(self) -> int:
        return 42

    def close(self) -> None:
        self.is_closed = True
