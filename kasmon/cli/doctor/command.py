"""`kasmon doctor`: what is wrong with this machine or this kasmon, and what to do about it."""

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.backends.common.environment import secret_values
from kasmon.cli.doctor.checks import checks
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.cli.output.console import note, say, say_block, tell
from kasmon.cli.output.json_objects import answer
from kasmon.config import load
from kasmon.config.explain import settings
from kasmon.errors import KasmonError
from kasmon.paths import Paths, places
from kasmon.sanitize import Clean, hidden_mark, redact

MARKS: Final = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
INFO: Final = "info"
"""The mark of what is unavailable and needs no fix; its level for programs is `ok`."""
TOLD: Final = ("TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "TMUX", "SHELL", "KASMON_TMUX", "KASMON_DEV")
"""The variables that a report shows; no other is looked at."""
LOG_LINES: Final = 40
NAMED: Final = r"(?i)((?:token|secret|passw(?:or)?d|api[-_]?key|authorization)\w*(?:=|: |', '))([^'\"\s]+)"
"""What is called a secret in a command line of the config: `--token=…`, `'--api-key', '…'`, `Authorization: …`."""
ADDRESSED: Final = r"(://)([^/\s'\"@]+)(?=@)"
"""Who an address logs in as."""


def doctor(*, fix: bool, report: bool, wants_json: bool) -> int:
    """Look at everything; 1 where something fails, else 0. *fix* mends what is harmless to mend, and looks again."""
    where = places()
    found = list(checks(where, os.environ))
    mended = mend(found) if fix else []
    found = list(checks(where, os.environ)) if mended else found
    if wants_json:
        tell(answer(checks=[_object(check) for check in found], fixed=mended))
    elif report:
        say_block(report_text(where, found))
    else:
        say(*(f"fixed {name}" for name in mended), *lines(found))
    return int(any(check.level == "fail" for check in found))


def mend(found: Sequence[DoctorCheck]) -> list[str]:
    """Do what is harmless about each of *found*, and return the ids of those that were mended; others are told."""
    mended: list[str] = []
    for check in found:
        if check.mend is None:
            continue
        try:
            check.mend()
        except OSError as error:
            place = f" {str(error.filename)!r}" if error.filename else ""
            note(f"{check.id} was not fixed: a system call failed{place}: {error.strerror or error}.")
        except KasmonError as error:
            note(f"{check.id} was not fixed: {error}")
        else:
            mended.append(check.id)
    return mended


def lines(found: Sequence[DoctorCheck]) -> list[str]:
    """The checks for people, each with its fix under it."""
    width = max(len(check.id) for check in found)
    told: list[str] = []
    for check in found:
        mark = INFO if check.is_info else MARKS[check.level]
        told.append(f"{mark}  {check.id:<{width}}  {check.text}")
        if check.fix:
            told.append(f"{'':<{width + 8}}{check.fix}")
    return told


def report_text(where: Paths, found: Sequence[DoctorCheck]) -> str:
    """Everything that helps somebody else to help, without secrets, without what agents said, and without your name."""
    import kasmon

    try:
        config = load(where)
        known = [value for profile in config.agents.values() for value in profile.env.values()]
        known += secret_values(os.environ)
        told = [_without_secrets(f"{key} = {value!r}") for key, value in settings(config).items() if key[-4:] != ".env"]
    except KasmonError as error:
        known, told = [], [str(error)]
    parts = [
        f"kasmon {kasmon.__version__}, Python {platform.python_version()}, {platform.platform()}",
        "\n".join(f"{name}={os.environ[name]}" for name in TOLD if name in os.environ),
        "\n".join(lines([_public(check) for check in found])),
        "\n".join(told),
        *(f"{path.name}:\n{_last_lines(path)}" for path in (where.own_log, where.tmux_host_log)),
    ]
    text, hidden = redact("\n\n".join(part for part in parts if part), known)
    home = os.environ.get("HOME") or str(Path.home())
    text = Clean(re.sub(rf"{re.escape(home)}(?=/|\W|$)", "~", text))
    for name in {os.environ.get("USER"), os.environ.get("LOGNAME")} - {None, "", "root"}:
        text = Clean(_replaced(text, str(name), "⟨user⟩"))
    return f"{text}\n\n{hidden} secrets are redacted."


def _public(check: DoctorCheck) -> DoctorCheck:
    """*check* without the names of a person's own."""
    said = [check.id, check.text, check.fix]
    for name, instead in check.private.items():
        said = [_replaced(text, name, instead) for text in said]
    return msgspec.structs.replace(check, id=said[0], text=said[1], fix=said[2])


def _replaced(text: str, name: str, instead: str) -> str:
    """*text* with *instead* where *name* stands as a word."""
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", lambda _: instead, text)


def _without_secrets(setting: str) -> str:
    """*setting* without what stands behind the word for a secret, or before the @ of an address."""
    for pattern in (NAMED, ADDRESSED):
        setting = re.sub(pattern, lambda found: found[1] + hidden_mark(len(found[2])), setting)
    return setting


def _last_lines(path: Path) -> str:
    try:
        return "\n".join(path.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]) or "(empty)"
    except OSError:
        return "(none)"


def _object(check: DoctorCheck) -> dict[str, Any]:
    return {
        "id": check.id,
        "level": check.level,
        "text": check.text,
        "fix": check.fix or None,
        "fixable": check.mend is not None,
    }
