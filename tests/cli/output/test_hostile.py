"""Nothing foreign acts on the terminal that a command prints to, and JSON stays ASCII."""

import json
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kasmon.model import events
from kasmon.model.commands import Launch, Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import Decision, Request, RequestId, SessionId, seal
from kasmon.store.event_log import EventLog
from tests.support.cli.cli_runner import Cli

EVIL = (
    "a\x1b]52;c;cm0=\x07b\x1b[2J\x9b31m\x90q\x9c\x05\x08\x7f\u202eevil\u202c\u200b\u2066x\u2069\ufeff"
    "[@click=app.quit]c[/] [/x] \U000e0041\x00\r\n\x1b[6n"
)
SESSION = SessionId("evilaaaa")
ENDED = SessionId("evilbbbb")
ALIVE = SessionId("evilcccc")
"""Somebody holds its host's lock, so its request is still open."""

HOLD = "import sys; from kasmon.host.rpc.host_lock import HostLock; from pathlib import Path;" \
       "HostLock(Path(sys.argv[1])).acquire(); print(flush=True); sys.stdin.read()"  # fmt: skip


@pytest.fixture
def hostile(kasmon: Cli) -> Iterator[Cli]:
    """A kasmon whose logs say the worst: an older or foreign writer may not have cleaned anything."""
    where = kasmon.paths
    where.make()
    for session in (SESSION, ENDED, ALIVE):
        where.folder(session).mkdir(mode=0o700)
        launch = Launch(
            session=session,
            name=f"{EVIL}{session}",
            agent=EVIL,
            mode=Mode.SDK,
            backend=EVIL,
            workdir=EVIL,
            fallback=EVIL,
            wave=1,
            plan=EVIL,
        )
        where.launch(session).write_bytes(msgspec.json.encode(launch))
        EventLog(where.fleet_log).append(events.SessionCreated(at=1.0, launch=launch, machine=EVIL))
        request = seal(
            Request(
                id=RequestId(f"{session}-1"),
                session=session,
                tool=EVIL,
                title=EVIL,
                input={"command": EVIL},
                shown=EVIL,
                choices=(Decision.ALLOW,),
                rule=EVIL,
                asked_at=2.0,
            )
        )
        receipt = Receipt(
            id=ReceiptId(f"{session}-r1"), session=session, state=ReceiptState.SUBMITTED, reason=EVIL, text=EVIL
        )
        log = EventLog(where.log(session))
        for event in (
            events.LogOpened(at=1.0, session=session),
            events.SessionStarted(
                at=1.0, backend=EVIL, workdir=EVIL, pid=1, pid_started=-1.0, resume_id=EVIL, model=EVIL
            ),
            events.TurnStarted(at=1.1, prompt=EVIL),
            events.ReceiptChanged(at=1.2, receipt=receipt, prompt=EVIL),
            events.MessageWritten(at=1.3, text=EVIL),
            events.ToolStarted(at=1.4, call="1", tool=EVIL, title=EVIL, input=json.dumps({"command": EVIL})),
            events.NoticeRaised(at=1.5, text=EVIL),
            events.RequestOpened(at=2.0, request=request),
        ):
            log.append(event)
    EventLog(where.log(ENDED)).append(events.SessionEnded(at=3.0, exit_code=1, why=EVIL))
    lock = str(where.host_lock(ALIVE))
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        yield kasmon
        holder.kill()


def harm(said: str) -> list[str]:
    """The characters of a terminal's input that act or hide; a pty's own line ends do not."""
    text = said.replace("\r\n", "\n")
    return [c for c in text if c != "\n" and c != "\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


COMMANDS = [
    ["ls"],
    ["show", ALIVE],
    ["ls", "--state", "lost,ended"],
    ["show", SESSION],
    ["show", ENDED],
    ["inbox"],
    ["read", SESSION],
    ["read", ENDED, "--ansi"],
    ["wait", SESSION, "--for", "lost,unsure"],
    ["wait", ENDED, "--for", "working", "--timeout", "1"],
    ["send", SESSION, "hello"],
    ["send", "--to", f"agent={EVIL}".replace("\0", ""), "hello"],
    ["stop", ENDED],
    ["interrupt", SESSION],
    ["attach", SESSION],
    ["answer", f"{SESSION}-1", "allow"],
    ["answer", EVIL.replace("\0", ""), "allow", "--digest", "0"],
    ["show", EVIL.replace("\0", "")],
    ["new", EVIL.replace("\0", ""), "--agent", EVIL.replace("\0", "")],
    ["new", "x", "--dir", EVIL.replace("\0", ""), "--agent", "scripted"],
    ["config", EVIL.replace("\0", "")],
    ["config", "ui.theme", EVIL.replace("\0", "")],
    ["config", "ui.bell", EVIL.replace("\0", "")],
    ["doctor"],
    ["doctor", "--report"],
    [EVIL.replace("\0", "")],
    ["ls", "--state", EVIL.replace("\0", "")],
    ["rename", ENDED, EVIL.replace("\0", "") + "!"],
    ["rm", ENDED],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: ascii(" ".join(arguments))[:40])
def test_no_command_prints_control_or_hidden_characters(hostile: Cli, arguments: list[str]) -> None:
    code, said = hostile.terminal(*arguments)

    assert said
    assert [] == harm(said)
    assert "internal error in kasmon" not in said
    assert code in (0, 1, 2, 3, 4, 5, 69)


def test_a_request_is_shown_with_everything_it_hides(hostile: Cli) -> None:
    """What it hides has to be seen, and then the tool's name typed instead of the plain word."""
    code, said = hostile.terminal("answer", f"{ALIVE}-1", "allow", typed=[("to cancel:", "allow\n")])

    assert 4 == code
    assert [] == harm(said)
    assert "⟨U+202E⟩evil⟨U+202C⟩⟨U+200B⟩" in said
    assert "hidden characters" in said


def test_open_requests_are_listed_without_control_characters(hostile: Cli) -> None:
    assert f"{ALIVE}-1" in hostile.terminal("inbox")[1]
    assert EVIL == hostile("inbox", "--json").json["requests"][0]["shown"]


def test_watching_prints_no_control_characters_either(hostile: Cli) -> None:
    code, said = hostile.terminal("ls", "--watch", typed=[("sessions", "\x03")])

    assert 130 == code
    assert [] == harm(said)


def strings(value: Any) -> list[str]:
    """Every text in *value*, at any depth."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for each in value.values() for text in strings(each)]
        case list():
            return [text for each in value for text in strings(each)]
    return []


@pytest.mark.parametrize(
    ("words", "text"),
    [("ls", EVIL), (f"show {SESSION}", EVIL), ("inbox", EVIL), (f"read {SESSION}", "  ⟨U+001B⟩[6n")],
    ids=["ls", "show", "inbox", "read, as it is drawn"],
)
def test_json_is_ascii_and_whole(hostile: Cli, words: str, text: str) -> None:
    done = hostile(*words.split(), "--json")

    assert 0 == done.code
    assert 1 == done.json["schema"]
    assert text in strings(done.json)


def test_a_broken_config_is_reported_without_control_characters(kasmon: Cli) -> None:
    kasmon.paths.config.mkdir(parents=True)
    kasmon.paths.config_file.write_text(f'[ui]\n"{EVIL.translate(dict.fromkeys(range(32)))}" = 1\n')

    code, said = kasmon.terminal("config")

    assert 2 == code
    assert [] == harm(said)
    assert "config.toml:2" in said
