"""The worst that can stand in a log: what would act on a terminal, on Textual, on a reader; and fleets made of it."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from kasmon.host.rpc.host_lock import HostLock
from kasmon.model import events
from kasmon.model.commands import Launch, Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId, seal
from kasmon.paths import Paths, write_private
from kasmon.process_identity import started_at
from kasmon.store.event_log import EventLog

ACTING: Final = {
    "clipboard": "\x1b]52;c;cHduZWQ=\x07",
    "clipboard, other end": "\x1b]52;c;cHduZWQ=\x1b\\",
    "clipboard, C1": "\x9d52;c;cHduZWQ=\x9c",
    "cursor report": "\x1b[6n",
    "cursor report, C1": "\x9b6n",
    "who are you": "\x1b[c\x1b[>c\x05",
    "setting report": "\x1bP$qm\x1b\\",
    "title": "\x1b]0;pwned\x07\x1b]2;pwned\x07",
    "title report": "\x1b[21t",
    "hyperlink": "\x1b]8;;file:///etc/passwd\x1b\\x\x1b]8;;\x1b\\",
    "notice": "\x1b]9;pwned\x07\x1b]777;notify;a;b\x07\x1b]99;;b\x1b\\",
    "graphics": "\x1b_Gf=24,s=1,v=1;AAAA\x1b\\\x1bPq#0;2;0;0;0~\x1b\\",
    "wipe": "\x1bc\x1b[2J\x1b[3J\x1b[H\x1b[?1049l",
    "right to left": "\u202egnp.exe\u202c \u2066x\u2069 \u061c\u200e\u200f",
    "invisible": "a\u200b\u2060\ufeff\u00ad\U000e0041b",
    "overwrite": "rm -rf /\r\x08\x08\x08ls   \x7f\x0b\x0c",
    "unended": "\x1b]52;c;cHduZWQ=",
}
"""What a terminal would act on, or a person be misled by."""
MARKUP: Final = {
    "click": "[@click=app.quit]click-me[/]",
    "click, do": "[@click=app.do('quit')]click-me[/]",
    "click, screen": "[@click=screen.dismiss]click-me[/]",
    "closing": "[/foo]",
    "closing nothing": "[/]",
    "link": "[link=file:///etc/passwd]x[/link]",
    "open": "[[[",
    "escaped": "\\[bold]x\\[/bold]",
    "style": "[bold red on white]x",
    "no style": "[#zzz]x[not a style]y",
    "variable": "[$error]x[/$error] $error {0} %s %(a)s",
    "emoji": ":skull: [:x:]",
}
"""What Textual would read as markup."""
LONG: Final = {
    "long": "x" * 10_000,
    "wide": "漢" * 3_000,
    "many lines": "y\n" * 2_000,
    "combining": "e" + "\u0301" * 500,
}
PAYLOADS: Final = ACTING | MARKUP | LONG

FORBIDDEN: Final = (
    b"\x1b]52", b"\x1b]0;", b"\x1b]2;", b"\x1b]8;", b"\x1b]9;", b"\x1b]777", b"\x1b]99", b"\x1b[6n",
    b"\x1b[c", b"\x1b[>c", b"\x05", b"\x1bP", b"\x1b_", b"\x1b[21t", b"\x1bc", b"\x1b[3J", b"\x7f", b"\x08", b"\x0b",
    b"\x0c", *(chr(code).encode() for code in (*range(0x80, 0xA0), 0xAD, 0x061C, 0x200B, 0x200E, 0x200F, 0x2060)),
    *(chr(code).encode() for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xE0041)),
)  # fmt: skip
"""What none of the payloads may bring to the terminal; the dashboard itself never writes any of these."""


def session_id(number: int) -> SessionId:
    return SessionId(f"evil{chr(97 + number // 26)}{chr(97 + number % 26)}aa")


def name_of(number: int, payload: str) -> str:
    """A name that begins with something to look for."""
    return f"e{number:02} {payload}"


def facts(session: SessionId, payload: str, pid: int | None = None, mode: Mode = Mode.SDK) -> list[events.Event]:
    """A session's story in which every text is *payload*; it asks in the end. *pid* is its agent's, if it has one."""
    now = time.time() - 30
    request = Request(
        id=RequestId(f"{session}-1"),
        session=session,
        tool=payload,
        title=payload,
        input={"command": payload, payload: [payload, {payload: payload}]},
        shown=payload,
        choices=(Decision.ALLOW, Decision.ALWAYS, Decision.DENY, Decision.EDIT),
        rule=payload,
        asked_at=now,
    )
    question = msgspec.structs.replace(
        request,
        id=RequestId(f"{session}-2"),
        kind=RequestKind.QUESTION,
        choices=(Decision.CHOOSE,),
        options=(payload, payload),
    )
    receipt = Receipt(
        id=ReceiptId(f"{session}-r1"), session=session, state=ReceiptState.QUEUED, reason=payload, text=payload
    )
    diff = f"--- {payload}\n+++ {payload}\n@@ -1 +1 @@ {payload}\n-{payload}\n+{payload}\n"
    return [
        events.LogOpened(at=now, session=session),
        events.SessionStarted(
            at=now,
            mode=mode,
            backend=payload,
            workdir=payload,
            pid=pid,
            pid_started=started_at(pid) if pid else None,
            host_pid=pid,
            resume_id=payload,
            model=payload,
        ),
        events.TurnStarted(at=now, prompt=payload),
        events.ReceiptChanged(at=now, receipt=receipt, prompt=payload),
        events.ThoughtWritten(at=now, text=payload),
        events.PlanUpdated(at=now, items=(events.PlanItem(text=payload, state="doing"),)),
        events.ToolStarted(at=now, call="1", tool=payload, title=payload, input=json.dumps({payload: payload})),
        events.ToolFinished(at=now, call="1", ok=False, output=payload, diff=diff, blob=payload),
        events.NoticeRaised(at=now, text=payload, level="error"),
        events.TurnEnded(at=now, reason="error", error=payload),
        events.TurnStarted(at=now, prompt=payload),
        events.MessageWritten(
            at=now, text=f"# {payload}\n\n- {payload}\n\n```\n{payload}\n```\n\n**{payload}** `{payload}`"
        ),
        events.RequestOpened(at=now, request=seal(request)),
        events.RequestOpened(at=now, request=seal(question)),
    ]


def settle(
    paths: Paths, number: int, payload: str, *facts: events.Event, mode: Mode = Mode.SDK, agent: str = ""
) -> None:
    """Write a session whose name, agent, folder, plan and *facts* are as bad as *payload* is."""
    session, now = session_id(number), time.time() - 30
    paths.folder(session).mkdir(mode=0o700)
    launch = Launch(
        session=session,
        name=name_of(number, payload),
        agent=agent or payload,
        mode=mode,
        backend=payload,
        workdir=payload,
        fallback=payload,
        model=payload,
        plan=payload,
        task=1,
        wave=1 + number % 3,
        peers=4,
        created_at=now,
    )
    write_private(paths.launch(session), msgspec.json.encode(launch))
    EventLog(paths.fleet_log).append(events.SessionCreated(at=now, launch=launch, machine=payload))
    log = EventLog(paths.log(session))
    for fact in facts:
        log.append(fact)


@contextlib.contextmanager
def hostile_fleet(paths: Paths) -> Iterator[dict[str, int]]:
    """One session for each of `PAYLOADS`, alive and asking, and one that crashed over it; its number by its payload.

    This process holds their locks, so every reader takes them for alive; nobody serves their sockets.
    """
    locks: list[HostLock] = []
    numbers = {name: number for number, name in enumerate(PAYLOADS)}
    for name, number in numbers.items():
        payload = PAYLOADS[name]
        session = session_id(number)
        settle(paths, number, payload, *facts(session, payload, os.getpid()))
        lock = HostLock(paths.host_lock(session))
        assert lock.acquire()
        locks.append(lock)
        dead = len(numbers) + number
        settle(
            paths, dead, payload, *facts(session_id(dead), payload, os.getpid()),
            events.SessionEnded(at=time.time(), exit_code=1, why=payload),
        )  # fmt: skip
    try:
        yield numbers
    finally:
        for lock in locks:
            lock.let_go()
