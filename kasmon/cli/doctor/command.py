"""`kasmon doctor`: problems of this machine or this kasmon, and their fixes."""

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from kasmon.backends.common.environment import secret_values
from kasmon.cli.arguments import Arg, Json, OnMachine
from kasmon.cli.doctor.checks import checks
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.cli.output.console import check_machine, note, print_json, say, say_block
from kasmon.config import load
from kasmon.config.explain import settings
from kasmon.errors import KasmonError
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import Clean, hidden_mark, redact

MARKS: Final = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
INFO: Final = "info"
"""The mark of something optional that is unavailable and needs no fix; its level for programs is `ok`."""
VARIABLES: Final = ("TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "TMUX", "SHELL", "KASMON_TMUX", "KASMON_DEV")
"""The only variables that a report reads and shows."""
LOG_LINES: Final = 40
NAMED: Final = r"(?i)((?:token|secret|passw(?:or)?d|api[-_]?key|authorization)\w*(?:=|: |', '))([^'\"\s]+)"
"""Named secrets in a command line of the config: `--token=…`, `'--api-key', '…'`, `Authorization: …`."""
ADDRESSED: Final = r"(://)([^/\s'\"@]+)(?=@)"
"""The login part of an address."""


def doctor(
    *,
    fix: Annotated[bool, Arg("Apply the fixes that are safe.")] = False,
    report: Annotated[bool, Arg("Print a report for a bug report, without secrets.")] = False,
    machine: OnMachine = "",
    wants_json: Json = False,
) -> int:
    """Check the installation; exit code 1 if a check fails."""
    check_machine(machine)
    where = user_paths()
    found = list(checks(where, os.environ))
    mended = mend(found) if fix else []
    found = list(checks(where, os.environ)) if mended else found
    if wants_json:
        print_json(checks=[_object(check) for check in found], fixed=mended)
    elif report:
        say_block(report_text(where, found))
    else:
        say(*(f"fixed {name}" for name in mended), *lines(found))
    return int(any(check.level == "fail" for check in found))


def mend(checks: Sequence[DoctorCheck]) -> list[str]:
    """Apply the harmless fixes of *checks* and return the ids of the fixed checks; failures are printed."""
    mended: list[str] = []
    for check in checks:
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


def lines(checks: Sequence[DoctorCheck]) -> list[str]:
    """Return the checks as text, each followed by its fix."""
    width = max(len(check.id) for check in checks)
    rows: list[str] = []
    for check in checks:
        mark = INFO if check.is_info else MARKS[check.level]
        rows.append(f"{mark}  {check.id:<{width}}  {check.text}")
        if check.fix:
            rows.append(f"{'':<{width + 8}}{check.fix}")
    return rows


def report_text(where: Paths, checks: Sequence[DoctorCheck]) -> str:
    """Return a report for others to help with, without secrets, agents' texts, and the user's name."""
    import kasmon

    try:
        config = load(where)
        known = [value for profile in config.agents.values() for value in profile.env.values()]
        known += secret_values(os.environ)
        settings_lines = [
            _without_secrets(f"{key} = {value!r}") for key, value in settings(config).items() if key[-4:] != ".env"
        ]
    except KasmonError as error:
        known, settings_lines = [], [str(error)]
    parts = [
        f"kasmon {kasmon.__version__}, Python {platform.python_version()}, {platform.platform()}",
        "\n".join(f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ),
        "\n".join(lines([_public(check) for check in checks])),
        "\n".join(settings_lines),
        *(f"{path.name}:\n{_last_lines(path)}" for path in (where.own_log, where.tmux_host_log)),
    ]
    text, hidden = redact("\n\n".join(part for part in parts if part), known)
    home = os.environ.get("HOME") or str(Path.home())
    text = Clean(re.sub(rf"{re.escape(home)}(?=/|\W|$)", "~", text))
    for name in {os.environ.get("USER"), os.environ.get("LOGNAME")} - {None, "", "root"}:
        text = Clean(_replace(text, str(name), "⟨user⟩"))
    return f"{text}\n\n{hidden} secrets are redacted."


def _public(check: DoctorCheck) -> DoctorCheck:
    """Return *check* without the names that the user chose."""
    texts = [check.id, check.text, check.fix]
    for name, instead in check.private.items():
        texts = [_replace(text, name, instead) for text in texts]
    return msgspec.structs.replace(check, id=texts[0], text=texts[1], fix=texts[2])


def _replace(text: str, name: str, instead: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", lambda _: instead, text)


def _without_secrets(setting: str) -> str:
    """Return *setting* without values of named secrets and logins of addresses."""
    for pattern in (NAMED, ADDRESSED):
        setting = re.sub(pattern, lambda match: match[1] + hidden_mark(len(match[2])), setting)
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
