"""What is typed into a terminal: whole, in order, once, and nothing where it would do harm."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import pytest

from kasmon.backends.tmux import readiness
from kasmon.backends.tmux.input import prompt_delivery
from kasmon.errors import PasteRefusedError, SessionBusyError, SessionEndedError, UsageError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import ExecuteCommand, Paste, SendKeys
from kasmon.host.terminal import typed_prompts as typed
from kasmon.model.commands import Prompt, ReceiptState
from kasmon.model.events import ReceiptChanged, SignalSeen
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.sanitize import outgoing
from tests.support.agents.golden_agent import GoldenAgent
from tests.support.host.tmux_env import TmuxEnv, prompted, python, sh
from tests.support.tmux.attached_terminal import attached
from tests.support.wait import auntil

ME = "abcdefgh"
R = ReceiptState
BRACKETED = r"\x1b[?2004hready"

SPEAKER = """
import os, sys, tty
tty.setraw(0)
file = open(sys.argv[1], "ab", buffering=0)
def say(state): os.write(1, b"\\x1b]7501;state=%s\\x07" % state)
say(b"idle")
line = b""
while data := os.read(0, 65536):
    file.write(data)
    line += data
    if b"\\x1b" in line: say(b"idle")
    *entered, line = line.rpartition(b"\\x1b")[2].split(b"\\r")
    for each in entered:
        for word in (b"working", b"blocked:kind=permission", b"idle", b"error:msg=NDAwIGJhZCByZXF1ZXN0"):
            if each.startswith(word[:4]): say(word)
"""
"""A program that reports the state that is typed into it, at Enter, and `idle` at Escape."""

pytestmark = [pytest.mark.story, pytest.mark.usefixtures("in_tmux_env")]


@contextlib.asynccontextmanager
async def speaking(tmux: TmuxEnv, **more: str) -> AsyncIterator[HostLink]:
    """Run the program, up to its first report."""
    async with tmux.serving() as link:
        await tmux.run(link, ME, *python(SPEAKER), str(tmux.root / "typed"), **more)
        await tmux.until_state(ME, SessionState.IDLE)
        yield link


def states(tmux: TmuxEnv, receipt: str) -> list[str]:
    return [
        str(moved.receipt.state) for moved in tmux.only(ReceiptChanged, SessionId(ME)) if moved.receipt.id == receipt
    ]


def types(tmux: TmuxEnv, word: str) -> None:
    """Type *word* and Enter behind the host's back."""
    tmux.server.run("send-keys", "-t", f"={ME}:", "-l", f"{word}\r")


# What arrives

TEXTS = {
    "a trailing semicolon": "echo one;",
    "semicolons": "a; b ;; c;",
    "a leading dash": "-t foo",
    "a key's name": "Enter",
    "quotes": 'it\'s "so" `x` $HOME \\ \\n',
    "a format": "#{pane_id} #(touch pwned) #S",
    "many lines": "one\n\ttwo\n\nthree",
    "escapes": "a\x1b[201~b\x1b]52;c;x\x07c",
    "controls": "a\x00b\x03c\x7fd",
    "unicode": "naïve ☃ 漢字 👩‍👩‍👧",
    "returns": "one\r\ntwo\rthree",
    "sixteen kilobytes and more": "word " * 8000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_a_prompt_arrives_cleaned_in_one_paste_and_is_submitted(tmux: TmuxEnv, text: str) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed", BRACKETED))
        receipt = await prompted(link, ME, text)
        expected = b"\x1b[200~" + outgoing(text).encode() + b"\x1b[201~\r"

        await auntil(lambda: len(tmux.recorded("typed")) >= len(expected))
        assert expected == tmux.recorded("typed")
        assert R.SUBMITTED is receipt.state
        assert ["typed", "submitted"] == states(tmux, receipt.id)
    assert not list(tmux.root.rglob("pwned"))


async def test_a_prompt_in_any_script_arrives_as_it_was_written(tmux: TmuxEnv) -> None:
    text = "می\u200cخواهم क्\u200dष \u2067שלום\u2069 👩\u200d🔬"
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed", BRACKETED))
        await prompted(link, ME, text)

        await auntil(lambda: b"\x1b[200~" + text.encode() + b"\x1b[201~\r" == tmux.recorded("typed"))


async def test_a_megabyte_arrives_whole(tmux: TmuxEnv) -> None:
    text = "".join(f"{number:07}\n" for number in range(131072))
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed", BRACKETED))
        await prompted(link, ME, text)

        await auntil(lambda: tmux.recorded("typed").endswith(b"\r"))
        assert b"\x1b[200~" + text.encode() + b"\x1b[201~\r" == tmux.recorded("typed")


async def test_a_program_that_reads_single_lines_gets_one_line_bare_and_several_not_at_all(
    tmux: TmuxEnv,
) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed"))
        with pytest.raises(PasteRefusedError, match="each line"):
            await prompted(link, ME, "one\ntwo")
        receipt = await prompted(link, ME, "three\n")

        await auntil(lambda: b"three\r" == tmux.recorded("typed"))
        assert "unverified" in receipt.reason


async def test_enter_comes_as_a_key_of_its_own(tmux: TmuxEnv) -> None:
    """Some agents take an Enter that comes with the text for a part of it."""
    script = """
import os, sys, time, tty
tty.setraw(0); os.write(1, b"ready")
while data := os.read(0, 65536): open(sys.argv[1], "a").write(f"{time.monotonic()} {data!r}\\n")
"""
    async with tmux.serving() as link:
        await tmux.run(link, ME, *python(script), str(tmux.root / "typed"))
        await prompted(link, ME, "hello")
        await auntil(lambda: 2 == tmux.recorded("typed").count(b"\n"))
        (text_at, text), (enter_at, enter) = (line.split(" ") for line in tmux.recorded("typed").decode().splitlines())

        assert ("b'hello'", "b'\\r'") == (text, enter)
        # The program may be late to read the text, which eats of the pause; it is never late for nothing.
        assert float(enter_at) - float(text_at) > 0.03


async def test_simultaneous_prompts_do_not_mix(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed", BRACKETED))
        await asyncio.gather(*(prompted(link, ME, letter * 3) for letter in "abcd"))
        await auntil(lambda: 4 == tmux.recorded("typed").count(b"\r"))
        pieces = tmux.recorded("typed").split(b"\r")

        assert sorted(b"\x1b[200~" + letter * 3 + b"\x1b[201~" for letter in (b"a", b"b", b"c", b"d")) == sorted(
            pieces[:-1]
        )


async def test_a_first_prompt_waits_until_the_program_reads(tmux: TmuxEnv) -> None:
    """What is typed before a program takes its terminal over may be thrown away by it."""
    script = "import sys, time, tty, termios\ntime.sleep(0.7)\ntty.setraw(0, termios.TCSAFLUSH)\n"
    async with tmux.serving() as link:
        await tmux.run(link, ME, *python(script + RECORD), str(tmux.root / "typed"), prompt="hello")

        await auntil(lambda: b"hello\r" == tmux.recorded("typed"))
        await auntil(lambda: ["queued", "typed", "submitted"] == states(tmux, f"{ME}-r1"))


@pytest.fixture
async def codex(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GoldenAgent]:
    """Codex, whose first prompt is due, on the screen before its session: it loses what is typed there."""
    monkeypatch.setattr(typed, "BEGINS_S", 0.0)
    agent = GoldenAgent(tmux, ME, "codex", "0.171.0")
    async with tmux.serving() as link:
        await tmux.run(link, ME, *agent.argv, agent="codex", prompt="the first")
        yield agent


async def judged(agent: GoldenAgent, case: str, state: SessionState, version: str = "") -> None:
    """Have *agent* show the screen *case*, and wait until it is judged to be in *state*."""
    await asyncio.to_thread(agent.shows, case, version)
    await asyncio.to_thread(agent.is_judged, state)


async def test_no_prompt_is_typed_before_the_session_of_its_agent_has_begun(tmux: TmuxEnv, codex: GoldenAgent) -> None:
    await judged(codex, "start-box", SessionState.STARTING)
    async with tmux.client() as link:
        second = await prompted(link, ME, "the second")
    await judged(codex, "trust", SessionState.ASKING, "0.169")

    assert (R.QUEUED, b"") == (second.state, codex.typed)
    assert {"queued"} == {*states(tmux, f"{ME}-r1")}

    await judged(codex, "idle", SessionState.IDLE)
    await auntil(lambda: b"the first" in codex.typed)


async def test_an_early_prompt_is_not_typed_before_the_first_output(
    tmux: TmuxEnv, codex: GoldenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is silent for a moment counts as one that reads; its input box is awaited then."""
    monkeypatch.setattr(prompt_delivery, "PATIENCE_S", 60.0)
    monkeypatch.setattr(readiness, "SETTLED_S", 0.0)
    await asyncio.to_thread(codex.do, print="loading")
    await judged(codex, "start-box", SessionState.STARTING)
    await judged(codex, "trust", SessionState.ASKING, "0.169")

    assert ({"queued"}, b"") == ({*states(tmux, f"{ME}-r1")}, codex.typed)

    await judged(codex, "idle", SessionState.IDLE)
    await auntil(lambda: b"the first" in codex.typed)


RECORD = """
import os
os.write(1, b"ready")
while data := os.read(0, 65536): open(sys.argv[1], "ab").write(data)
"""


async def test_an_empty_prompt_is_refused_and_presses_no_key(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed"))
        for nothing in (" \n", "\x1b[201~\x07"):
            with pytest.raises(UsageError):
                await prompted(link, ME, nothing)
        await prompted(link, ME, "x")

        await auntil(lambda: b"x\r" == tmux.recorded("typed"))


# When it goes


async def test_without_a_known_idle_state_a_prompt_for_idle_waits_and_gives_the_reason(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed"))
        await tmux.until_state(ME, SessionState.UNSURE)
        await auntil(lambda: tmux.recorded("typed") == b"" and tmux.facts(ME) is not None)
        first = await prompted(link, ME, "now")
        later = await prompted(link, ME, "later", when="idle")

        assert (R.SUBMITTED, R.QUEUED) == (first.state, later.state)
        assert "cannot detect when this program is idle" in later.reason
        assert "cannot detect when this program is idle" in tmux.session(SessionId(ME)).receipts[-1].reason


async def test_a_prompt_for_idle_is_sent_when_its_program_reports_idle(tmux: TmuxEnv) -> None:
    async with speaking(tmux) as link:
        await prompted(link, ME, "working")
        await tmux.until_state(ME, SessionState.WORKING)
        waits = await prompted(link, ME, "later", when="idle")
        assert (R.QUEUED, "") == (waits.state, waits.reason)
        await prompted(link, ME, "idle")

        await auntil(lambda: b"working\ridle\rlater\r" == tmux.recorded("typed"))
        await auntil(lambda: ["queued", "typed", "submitted"] == states(tmux, waits.id)[:3])


async def test_a_prompt_to_a_busy_agent_can_be_refused(tmux: TmuxEnv) -> None:
    async with speaking(tmux) as link:
        await prompted(link, ME, "working")
        await tmux.until_state(ME, SessionState.WORKING)
        with pytest.raises(SessionBusyError):
            await prompted(link, ME, "no", when="refuse")
        await prompted(link, ME, "yes")

        await auntil(lambda: b"working\ryes\r" == tmux.recorded("typed"))


async def test_nothing_is_typed_into_an_agent_that_asks(tmux: TmuxEnv) -> None:
    """The prompt's Enter would answer what it asks."""
    async with speaking(tmux) as link:
        await prompted(link, ME, "blocked")
        await tmux.until_state(ME, SessionState.ASKING)
        with pytest.raises(SessionBusyError, match="is asking"):
            await prompted(link, ME, "go on")

        assert b"blocked\r" == tmux.recorded("typed")
        assert R.REFUSED is tmux.session(SessionId(ME)).receipts[-1].state


async def test_an_interrupting_prompt_follows_the_key_that_ends_the_turn(tmux: TmuxEnv) -> None:
    async with speaking(tmux, agent="claude") as link:
        await prompted(link, ME, "working")
        await tmux.until_state(ME, SessionState.WORKING)
        await prompted(link, ME, "instead", when="interrupt")

        await auntil(lambda: b"working\r\x1binstead\r" == tmux.recorded("typed"))


async def test_a_reported_turn_advances_the_receipt(tmux: TmuxEnv) -> None:
    async with speaking(tmux) as link:
        receipt = await prompted(link, ME, "working")
        await auntil(lambda: ["typed", "submitted", "started"] == states(tmux, receipt.id))
        await prompted(link, ME, "idle")

        await auntil(lambda: "finished" == states(tmux, receipt.id)[-1])


async def test_a_turn_that_ends_in_an_error_is_failed_and_shown_until_the_next_turn(
    tmux: TmuxEnv,
) -> None:
    async with speaking(tmux) as link:
        receipt = await prompted(link, ME, "working")
        await auntil(lambda: "started" == states(tmux, receipt.id)[-1])
        types(tmux, "error")
        await auntil(lambda: "failed" == states(tmux, receipt.id)[-1])
        session = tmux.session(SessionId(ME))
        assert (SessionState.IDLE, "error") == (session.state, session.turn_ended)
        assert ["400 bad request"] * 2 == [session.turn_error, session.receipts[0].reason]

        again = await prompted(link, ME, "working")
        await auntil(lambda: "started" == states(tmux, again.id)[-1])
        assert ("", "") == ((now := tmux.session(SessionId(ME))).turn_ended, now.turn_error)


async def test_a_turn_that_fails_before_its_start_belongs_to_the_last_accepted_prompt(tmux: TmuxEnv) -> None:
    async with speaking(tmux) as link:
        first = await prompted(link, ME, "working")
        await auntil(lambda: "started" == states(tmux, first.id)[-1])
        types(tmux, "idle")
        await auntil(lambda: "finished" == states(tmux, first.id)[-1])
        second = await prompted(link, ME, "taken in silence")
        await auntil(lambda: "submitted" == states(tmux, second.id)[-1])
        types(tmux, "error")

        await auntil(lambda: "failed" == states(tmux, second.id)[-1])
        session = tmux.session(SessionId(ME))
        assert [("finished", "alone"), ("failed", "alone")] == [(r.state, r.carried_by) for r in session.receipts]


async def test_a_turn_that_may_belong_to_several_prompts_belongs_to_none(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed, "BEGIN_S", 0.3)
    async with speaking(tmux) as link:
        first = await prompted(link, ME, "working")
        await auntil(lambda: "started" == states(tmux, first.id)[-1])
        texts = [await prompted(link, ME, text) for text in ("one", "two")]
        for word, state in (
            ("idle", SessionState.IDLE),
            ("working", SessionState.WORKING),
            ("idle", SessionState.IDLE),
        ):
            types(tmux, word)
            await tmux.until_state(ME, state)

        await auntil(lambda: [R.UNSURE] * 2 == [r.state for r in tmux.session(SessionId(ME)).receipts[1:]])
        assert "finished" == states(tmux, first.id)[-1]
        assert [typed.SEVERAL] * 2 == [r.reason.partition(";")[0] for r in tmux.session(SessionId(ME)).receipts[1:]]
        assert not [state for receipt in texts for state in states(tmux, receipt.id) if state == "finished"]


async def test_a_turn_that_may_be_the_users_belongs_to_no_prompt(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed, "BEGIN_S", 0.3)
    async with speaking(tmux) as link:
        receipt = await prompted(link, ME, "nothing comes of this")
        link.send(SendKeys(session=SessionId(ME), data=b"working\r"))
        await tmux.until_state(ME, SessionState.WORKING)
        link.send(SendKeys(session=SessionId(ME), data=b"idle\r"))

        await auntil(lambda: "unsure" == states(tmux, receipt.id)[-1])
        assert typed.TYPED_INTO in tmux.session(SessionId(ME)).receipts[-1].reason


async def test_a_turn_possibly_started_in_an_attached_terminal_belongs_to_no_prompt(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed, "BEGIN_S", 0.3)
    async with speaking(tmux) as link:
        with attached(tmux.server, ME) as keys:
            await auntil(lambda: (facts := tmux.facts(ME)) is not None and facts.attached)
            receipt = await prompted(link, ME, "nothing comes of this", when="idle")
            await auntil(lambda: "submitted" == states(tmux, receipt.id)[-1])
            os.write(keys, b"working\r")
            await tmux.until_state(ME, SessionState.WORKING)
            os.write(keys, b"idle\r")

            await auntil(lambda: "unsure" == states(tmux, receipt.id)[-1])
        assert typed.TYPED_INTO in tmux.session(SessionId(ME)).receipts[-1].reason
        assert not {"started", "finished"} & {*states(tmux, receipt.id)}


async def test_a_prompt_for_an_agent_that_ends_before_it_reads_is_refused(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *sh("sleep 0.3"))
        with pytest.raises(SessionEndedError):
            await prompted(link, ME, "hello")

        assert () == tmux.session(session).receipts


# Where it would do harm


async def test_nothing_is_pasted_while_a_user_reads_the_history(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed"))
        await tmux.ready(ME)
        tmux.server.run("copy-mode", "-t", f"={ME}:")
        with pytest.raises(PasteRefusedError):
            await prompted(link, ME, "q")

        assert b"" == tmux.recorded("typed")
        assert R.REFUSED is tmux.session(SessionId(ME)).receipts[-1].state


async def test_a_prompt_for_an_agent_that_dies_is_refused_and_the_server_continues(tmux: TmuxEnv) -> None:
    """A paste into a dead pane kills tmux 3.3a."""
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *sh("read x; exec sleep 100"))
        await tmux.run(link, "other234", "cat")
        await tmux.ready(ME)
        await prompted(link, ME, "x")
        pid = tmux.session(session).pid
        assert pid
        os.kill(pid, 9)
        results = await asyncio.gather(
            *(link.ask(ExecuteCommand(n=0, session=session, command=Prompt(text="y"))) for _ in range(3)),
            return_exceptions=True,
        )

        assert all(isinstance(result, Exception) for result in results)
        assert (await tmux.pane(link, "other234")).width


# Beside a person


async def test_keys_and_pastes_of_a_user_arrive_in_order(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *tmux.recorder("typed", BRACKETED))
        await tmux.shows(ME, "ready")
        for frame in (
            SendKeys(session=session, data=b"a\x1bb"),
            Paste(session=session, text="one\ntwo"),
            SendKeys(session=session, data=b"c"),
            Paste(session=session, text="x\x1b[201~y"),
            SendKeys(session=session, data=b"\x00\xff\r"),
        ):
            link.send(frame)

        expected = b"a\x1bb\x1b[200~one\ntwo\x1b[201~c\x1b[200~xy\x1b[201~\x00\xff\r"
        await auntil(lambda: len(expected) <= len(tmux.recorded("typed")))
        assert expected == tmux.recorded("typed")


async def test_a_prompt_and_a_users_input_do_not_mix(tmux: TmuxEnv) -> None:
    """What is typed between a prompt's text and its Enter comes behind it; a prompt waits for who types."""
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *tmux.recorder("typed", BRACKETED))
        await tmux.shows(ME, "ready")
        sending = asyncio.create_task(prompted(link, ME, "prompt"))
        letters = iter("abcdefghijklmnopqrstuvwxyz" * 4)
        while not sending.done():
            if b"prompt" in tmux.recorded("typed") or len(tmux.recorded("typed")) < 8:
                link.send(SendKeys(session=session, data=next(letters).encode()))
            await asyncio.sleep(0.02)
        typed = len(tmux.recorded("typed"))
        link.send(SendKeys(session=session, data=b"!"))
        await auntil(lambda: tmux.recorded("typed").endswith(b"!"))

        assert b"\x1b[200~prompt\x1b[201~\r" in tmux.recorded("typed")
        assert typed


async def test_a_user_who_keeps_typing_is_not_interrupted(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kasmon.backends.tmux.input.pane_writer.PATIENCE_S", 0.5)
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *tmux.recorder("typed"))
        await tmux.ready(ME)
        await auntil(lambda: (tmux.root / "typed").exists())
        sending = asyncio.create_task(prompted(link, ME, "prompt"))
        while not sending.done():
            link.send(SendKeys(session=session, data=b"k"))
            await asyncio.sleep(0.02)

        with pytest.raises(SessionBusyError, match="being typed into"):
            await sending
        assert b"prompt" not in tmux.recorded("typed")


async def test_a_users_typing_is_no_work_of_the_agent(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        for typed in range(1, 6):
            link.send(SendKeys(session=session, data=b"k"))
            await tmux.shows(ME, "k" * typed)
        await auntil(lambda: "kkkkk" in tmux.session(session).last_line)

        assert ["quiet"] == [signal.value for signal in tmux.only(SignalSeen, session) if signal.source == "output"]
