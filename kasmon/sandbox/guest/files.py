"""Synchronizes a folder in a guest that shares none with the host: sends and applies what changed since the last time.

    python3 -I -S files.py give FOLDER NOTE      prints what changed in FOLDER since NOTE was written
    python3 -I -S files.py take FOLDER NOTE FILE applies FILE to FOLDER; prints the paths that were changed in here too

The changes are JSON: `whole` (there was no earlier state), `gone` (paths), `fresh` (path -> kind, mode, content in
base64, or a link's target), `left` (path -> why it is left out).
"""

import base64
import json
import os
import stat
import sys

MOST_BYTES = 64 * 1024 * 1024
"""A larger file, and files beyond this total at a time, are left out."""
KINDS = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}


def seen(top: str) -> dict[str, list[object]]:
    """Return each path in *top* with its kind, mode, size, times and inode."""
    found: dict[str, list[object]] = {}
    folders = [""]
    while folders:
        before = folders.pop()
        with os.scandir(os.path.join(top, before)) as names:  # noqa: PTH118 - see standalone.py
            for name in names:
                facts, path = _facts(name.stat(follow_symlinks=False)), before + name.name
                if facts is None:
                    continue
                found[path] = facts
                if facts[0] == "d" and os.access(name.path, os.R_OK | os.X_OK):
                    folders.append(f"{path}/")
    return found


def _facts(facts: os.stat_result) -> "list[object] | None":
    kind = KINDS.get(stat.S_IFMT(facts.st_mode))
    if kind is None:
        return None
    times = [] if kind == "d" else [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
    return [kind, stat.S_IMODE(facts.st_mode), *times]


def given(top: str, before: dict[str, list[object]] | None) -> tuple[dict[str, object], dict[str, list[object]]]:
    """Return the changes in *top* since *before*, and its current state."""
    now, known = seen(top), before or {}
    fresh: dict[str, object] = {}
    left: dict[str, str] = {}
    total = 0
    for path, facts in sorted(now.items()):
        if known.get(path) == facts:
            continue
        kind, mode = facts[:2]
        content = ""
        try:
            if kind == "f":
                total += int(str(facts[2]))
                if total > MOST_BYTES:
                    total -= int(str(facts[2]))
                    raise OSError(f"more than {MOST_BYTES // (1 << 20)} MiB at once")
                with open(os.path.join(top, path), "rb") as file:  # noqa: PTH118, PTH123
                    content = base64.b64encode(file.read()).decode("ascii")
            elif kind == "l":
                content = os.readlink(os.path.join(top, path))  # noqa: PTH115, PTH118
        except OSError as error:
            left[path] = error.strerror or str(error)
            continue
        fresh[path] = {"kind": kind, "mode": mode, "content": content}
    kept = {path: facts for path, facts in now.items() if path not in left}
    gone = sorted(set(known) - set(now))
    return {"whole": before is None, "gone": gone, "fresh": fresh, "left": left}, kept


def give(top: str, note: str) -> None:
    before = _read_note(note)
    fresh, now = given(top, before)
    sys.stdout.write(json.dumps(fresh))
    sys.stdout.flush()
    _note(note, now)


def apply(top: str, note: str, changes: str) -> None:
    """Apply the changes in the file *changes* to *top*, and delete that file.

    A file that was changed in here too is renamed to `.inside`, or stays where the other side removed it.
    """
    with open(changes) as file:  # noqa: PTH123
        received = json.load(file)
    known = _read_note(note)
    has: dict[str, list[object]] = known or {}
    apart = []
    for path in sorted(received["gone"], reverse=True):
        whole = os.path.join(top, path)  # noqa: PTH118
        now, had = _now(whole), has.pop(path, None)
        if now is not None and (now != had or not _remove(whole, now)):
            apart.append(path)
    for path, each in sorted(received["fresh"].items()):
        whole = os.path.join(top, path)  # noqa: PTH118
        now = _now(whole)
        if now is not None and now[0] != each["kind"] and now == has.get(path) and _remove(whole, now):
            now = None
        if now is not None and (now[0] != each["kind"] or (now[0] != "d" and now != has.get(path))):
            os.rename(whole, _beside(whole))  # noqa: PTH104
            apart.append(path)
        _put(whole, each)
        has[path] = _now(whole) or []
    os.unlink(changes)  # noqa: PTH108
    _note(note, seen(top) if known is None else has)
    sys.stdout.write(json.dumps(apart))


def _remove(whole: str, facts: "list[object]") -> bool:
    """Remove the path *whole*, of the kind in *facts*; return whether it is gone. A non-empty folder stays."""
    try:
        (os.rmdir if facts[0] == "d" else os.unlink)(whole)
    except OSError:
        return False
    return True


def _put(whole: str, entry: dict[str, str]) -> None:
    if entry["kind"] == "d":
        os.makedirs(whole, mode=0o700, exist_ok=True)  # noqa: PTH103
        return
    fresh = f"{whole}~kasmon"
    if entry["kind"] == "l":
        os.symlink(entry["content"], fresh)  # noqa: PTH211
    else:
        with open(fresh, "wb") as file:  # noqa: PTH123
            file.write(base64.b64decode(entry["content"]))
        os.chmod(fresh, int(entry["mode"]))  # noqa: PTH101
    os.replace(fresh, whole)  # noqa: PTH105


def _beside(whole: str) -> str:
    """Return an unused name next to *whole*."""
    found, number = f"{whole}.inside", 1
    while os.path.lexists(found):
        number += 1
        found = f"{whole}.inside{number}"
    return found


def _now(whole: str) -> "list[object] | None":
    try:
        return _facts(os.lstat(whole))
    except OSError:
        return None


def _read_note(note: str) -> "dict[str, list[object]] | None":
    try:
        with open(note) as file:  # noqa: PTH123
            found: dict[str, list[object]] = json.load(file)
    except (OSError, ValueError):
        return None
    return found


def _note(note: str, now: object) -> None:
    with open(f"{note}~", "w") as file:  # noqa: PTH123
        json.dump(now, file)
    os.replace(f"{note}~", note)  # noqa: PTH105


if __name__ == "__main__":
    if sys.argv[1] == "give":
        give(*sys.argv[2:])
    else:
        apply(*sys.argv[2:])
