"""Prompts into terminals that make it hard: given whole and once, or the receipt says why not.

The program is the bench's (kasmon/bench/programs/promptbox.py); a thousand prompts are its scene `delivery`.
"""

import asyncio
import itertools
import json
import os
import signal

import msgspec
import pytest

from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.evidence.screen_reader import ScreenObservation
from kasmon.backends.tmux.input import pane_writer, prompt_delivery, prompt_entry
from kasmon.backends.tmux.input.pane_writer import ExclusivePaneWriter
from kasmon.bench.dashboard.prompt_delivery import (
    FAILED,
    HOSTILE,
    TAKEN,
    DeliveryCount,
    command,
    install_rules,
    prompts,
    tally,
)
from kasmon.errors import KasmonError, PasteRefusedError, PromptBoxError, PromptLostError, SessionBusyError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import SendKeys
from kasmon.host.terminal import typed_prompts
from kasmon.model.commands import Receipt, ReceiptId, ReceiptState
from kasmon.model.events import ReceiptChanged, SignalSeen
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from tests.support.host.tmux_env import TmuxEnv, prompted
from tests.support.tmux.attached_terminal import attached
from tests.support.wait import auntil, until

pytestmark = pytest.mark.story

ME = "abcdefgh"
EACH = 3
"""How many prompts each kind of terminal gets."""
R = ReceiptState


@pytest.fixture
def tmux(tmux: TmuxEnv, in_tmux_env: None, monkeypatch: pytest.MonkeyPatch) -> TmuxEnv:
    monkeypatch.setattr(prompt_delivery, "PATIENCE_S", 0.2)
    monkeypatch.setattr(prompt_entry, "TAKEN_S", 0.45)
    monkeypatch.setattr(typed_prompts, "HOLD_S", 0.1)
    install_rules(tmux.paths)
    return tmux


def box(tmux: TmuxEnv, *flags: str, name: str = "record") -> tuple[str, ...]:
    record = tmux.root / name
    record.touch(mode=0o600)
    return tuple(command(tmux.paths, record, flags))


def records(tmux: TmuxEnv, kind: str = "submitted") -> list[str]:
    """What the program was given, or what was typed into its questions."""
    lines = (tmux.root / "record").read_text().splitlines()
    return [record[kind] for record in map(json.loads, lines) if kind in record]


def states(tmux: TmuxEnv, receipt: str) -> list[tuple[str, str]]:
    moved = [moved.receipt for moved in tmux.only(ReceiptChanged, SessionId(ME)) if moved.receipt.id == receipt]
    return [(str(one.state), one.reason) for one in moved]


def screen(tmux: TmuxEnv) -> bytes:
    return tmux.server.run("capture-pane", "-p", "-t", f"={ME}:")


def unblock(tmux: TmuxEnv) -> None:
    """Take the draft, or the question, away."""
    pid = tmux.session(SessionId(ME)).pid
    assert pid
    os.kill(pid, signal.SIGUSR1)


async def given(link: HostLink, tmux: TmuxEnv, session: str, text: str) -> Receipt:
    """The receipt of *text* once it is taken, refused or lost."""
    try:
        receipt = await prompted(link, session, text)
    except KasmonError as error:
        state = R.LOST if isinstance(error, PromptLostError) else R.REFUSED
        return Receipt(id=ReceiptId(""), session=SessionId(session), state=state, reason=error.message)

    def now() -> Receipt:
        return next(known for known in tmux.session(SessionId(session)).receipts if known.id == receipt.id)

    await auntil(lambda: now().state in TAKEN | FAILED)
    return now()


# Whatever the terminal does


async def test_a_submitted_prompt_was_delivered_once_and_whole_whatever_the_terminal_does(tmux: TmuxEnv) -> None:
    """27 prompts of the seeded ones, at once into nine kinds of terminals."""

    async def one(link: HostLink, number: int, flags: tuple[str, ...]) -> DeliveryCount:
        session = f"kind-{number}xxxx"
        await tmux.run(link, session, *box(tmux, *flags, name=session))
        texts = list(itertools.islice(prompts(number), EACH))
        receipts = [await given(link, tmux, session, text) for text in texts]
        return tally(texts, receipts, tmux.root / session, [0.0] * EACH)

    async with tmux.serving() as link:
        kinds = [one(link, number, flags) for number, flags in enumerate(HOSTILE.values())]
        found = dict(zip(HOSTILE, await asyncio.gather(*kinds), strict=True))

    whole = DeliveryCount(EACH, EACH, refused=0, lost=0, doubled=0, false=0, unsent=0, answered=0, took_s=(0.0,) * EACH)
    assert dict.fromkeys(HOSTILE, whole) == found


# One by one


async def test_a_receipt_reports_each_observed_step(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "turn=0.6"))
        receipt = await given(link, tmux, ME, "work")
        assert R.STARTED is receipt.state or R.SUBMITTED is receipt.state
        await auntil(lambda: "finished" == states(tmux, receipt.id)[-1][0])

        seen = [
            ("typed", typed_prompts.BEING_TYPED),
            *((step, "") for step in ("typed", "submitted", "started", "finished")),
        ]
        assert seen == states(tmux, receipt.id)


async def test_an_enter_without_effect_is_not_reported_as_submitted(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "drop=99"))
        with pytest.raises(PromptLostError, match="Enter was not accepted"):
            await prompted(link, ME, "go on")

        assert [] == records(tmux)
        assert ["typed", "typed", "lost"] == [state for state, _ in states(tmux, f"{ME}-r1")]


async def test_a_request_that_appears_before_the_enter_is_not_answered(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tmux itself compares, in the moment of the key, what stands there with what was seen."""
    looks, see = itertools.count(), TmuxAgent.see_now

    async def see_and_be_asked(agent: TmuxAgent) -> ScreenObservation:
        seen = await see(agent)
        if seen.reading.composer is not None and seen.reading.composer.draft and next(looks) == 1:
            os.kill(agent.pid, signal.SIGUSR2)
            await asyncio.to_thread(until, lambda: b"Do you want" in screen(tmux))
        return seen

    monkeypatch.setattr(TmuxAgent, "see_now", see_and_be_asked)
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux))
        await tmux.until_state(ME, SessionState.IDLE)
        await prompted(link, ME, "go on")

        assert (["go on"], []) == (records(tmux), records(tmux, "answered"))
    assert next(looks) > 1


async def test_a_draft_is_neither_lost_nor_sent_and_the_queue_proceeds_after_it(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "draft=half a thought"))
        await tmux.until_state(ME, SessionState.IDLE)
        with pytest.raises(PromptBoxError, match=r"contains a draft .*'half a thought'"):
            await prompted(link, ME, "now")
        waits = await prompted(link, ME, "later", when="idle")
        await auntil(lambda: "draft" in states(tmux, waits.id)[-1][1])
        await tmux.shows(ME, "half a thought")
        assert (R.QUEUED, []) == (waits.state, records(tmux))

        unblock(tmux)
        await auntil(lambda: ["later"] == records(tmux))


async def test_a_first_prompt_waits_for_start_dialogs_and_does_not_answer_them(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "dialog=1"), prompt="begin")
        await tmux.until_state(ME, SessionState.ASKING)
        await auntil(lambda: [R.QUEUED] == [receipt.state for receipt in tmux.session(SessionId(ME)).receipts])
        assert ([], []) == (records(tmux), records(tmux, "answered"))

        unblock(tmux)
        await auntil(lambda: ["begin"] == records(tmux))
        assert [] == records(tmux, "answered")


def boxless(tmux: TmuxEnv, *, asks: str = "") -> tuple[str, ...]:
    """The same program by its name, of a version that looks otherwise: it reads lines; it *asks* what is typed into."""
    script = (
        "import json, os, sys, tty; print('welcome', flush=True); tty.setcbreak(0); said = b''\n"
        "while data := os.read(0, 4096):\n"
        f"    said += data; print({asks!r} or data.decode(), flush=True)\n"
        "    if data[-1:] in b'\\r\\n':\n"
        "        print(json.dumps({'submitted': said.decode().strip()}), file=open(sys.argv[1], 'a')); said = b''"
    )
    program, *_ = box(tmux)
    return program, "-I", "-S", "-c", script, str(tmux.root / "record")


async def test_without_a_visible_box_only_a_forced_prompt_is_typed_and_its_receipt_reports_that(
    tmux: TmuxEnv,
) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *boxless(tmux))
        await tmux.shows(ME, "welcome")
        with pytest.raises(PromptBoxError, match="shows no input box") as refused:
            await prompted(link, ME, "go on")
        assert ([], True) == (records(tmux), refused.value.is_unseen)

        receipt = await prompted(link, ME, "go on", anyway=True)

        await auntil(lambda: ["go on"] == records(tmux))
        assert (R.SUBMITTED, prompt_delivery.UNSEEN) == (receipt.state, receipt.reason)


async def test_force_does_not_bypass_a_visible_draft_or_a_request(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "dialog=1"))
        await tmux.until_state(ME, SessionState.ASKING)
        with pytest.raises(SessionBusyError, match="asking"):
            await prompted(link, ME, "now", anyway=True)
        other = await tmux.run(link, "bcdefghi", *box(tmux, "draft=half a thought"))
        await tmux.until_state(other, SessionState.IDLE)
        with pytest.raises(PromptBoxError, match="half a thought"):
            await prompted(link, other, "now", anyway=True)

        assert ([], []) == (records(tmux), records(tmux, "answered"))


async def test_a_request_during_a_forced_prompt_gets_no_enter(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *boxless(tmux, asks=" Do you want to go on?\n> 1. Yes\n  2. No"))
        await tmux.shows(ME, "welcome")
        with pytest.raises(PromptLostError, match="but not Enter"):
            await prompted(link, ME, "go on", anyway=True)

        assert [] == records(tmux)


async def test_a_program_that_exits_during_a_paste_loses_the_prompt_and_reports_it(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "dies=3000"))
        await tmux.until_state(ME, SessionState.IDLE)
        with pytest.raises(PromptLostError, match="ended"):
            await prompted(link, ME, "word " * 4000)

        assert R.LOST is tmux.session(SessionId(ME)).receipts[-1].state
        assert (await tmux.ended(ME)).exit_code == 3


async def test_a_tmux_server_killed_during_a_send_loses_the_prompt_and_reports_it(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "drop=99"))
        await tmux.until_state(ME, SessionState.IDLE)
        sending = asyncio.create_task(prompted(link, ME, "go on"))
        await auntil(lambda: ("typed", "") in states(tmux, f"{ME}-r1"))
        tmux.server.kill_server()
        with pytest.raises(PromptLostError):
            await sending

        assert ("lost", []) == (states(tmux, f"{ME}-r1")[-1][0], records(tmux))


async def test_a_host_killed_during_a_send_leaves_a_lost_receipt_and_the_prompt_is_not_typed_again(
    tmux: TmuxEnv,
) -> None:
    first = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *box(tmux, "drop=99"))
        await tmux.until_state(ME, SessionState.IDLE)
        sending = asyncio.create_task(prompted(link, ME, "go on"))
        await auntil(lambda: ("typed", "") in states(tmux, f"{ME}-r1"))
        first.kill()
        first.wait()
        with pytest.raises(KasmonError):
            await sending
    async with tmux.serving() as link:
        await auntil(lambda: R.LOST is tmux.session(SessionId(ME)).receipts[-1].state)
        with pytest.raises(PromptBoxError, match="'go on'"):
            await prompted(link, ME, "again")

        assert [] == records(tmux)


async def test_a_turn_that_ends_while_no_host_runs_ends_its_receipt_at_the_next_one(tmux: TmuxEnv) -> None:
    first = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *box(tmux, "turn=1.5"))
        await tmux.until_state(ME, SessionState.IDLE)
        receipt = await prompted(link, ME, "go on")
        await auntil(lambda: "started" == states(tmux, receipt.id)[-1][0])
    first.kill()
    first.wait()
    await auntil(lambda: "Working" not in screen(tmux).decode())
    async with tmux.serving():
        await auntil(lambda: "finished" == states(tmux, receipt.id)[-1][0])


async def test_an_interrupting_prompt_leaves_the_history_and_a_waiting_one_waits_for_its_end(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "turn=0.8"))
        await tmux.until_state(ME, SessionState.IDLE)
        tmux.server.run("copy-mode", "-t", f"={ME}:")
        waits = await prompted(link, ME, "later", when="idle")
        await auntil(lambda: "copy mode" in states(tmux, waits.id)[-1][1])
        assert ([], "queued") == (records(tmux), states(tmux, waits.id)[-1][0])
        await prompted(link, ME, "at once", when="interrupt")

        await auntil(lambda: ["at once", "later"] == records(tmux))


async def test_while_the_input_is_off_nothing_is_typed_and_the_queue_proceeds_when_it_is_on(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux))
        await tmux.until_state(ME, SessionState.IDLE)
        tmux.server.run("select-pane", "-d", "-t", f"={ME}:")
        with pytest.raises(PasteRefusedError, match="input is off"):
            await prompted(link, ME, "now")
        waits = await prompted(link, ME, "later", when="idle")
        assert (R.QUEUED, True) == (waits.state, "input is off" in waits.reason)
        tmux.server.run("select-pane", "-e", "-t", f"={ME}:")

        await auntil(lambda: ["later"] == records(tmux))
        steps = [state for state, _ in states(tmux, waits.id)]
        assert "queued" not in steps[steps.index("typed") :]


async def test_a_program_with_missed_output_gets_no_lines_that_it_may_read_one_by_one(
    tmux: TmuxEnv,
) -> None:
    """Its box is known, and so are the keys for a new line; whether it takes a paste as one is not, after a restart."""
    first = tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, *box(tmux, "bare=1"))
        await auntil(lambda: any(signal.source == "screen" for signal in tmux.only(SignalSeen, SessionId(ME))))
    first.kill()
    first.wait()
    async with tmux.serving() as link:
        await prompted(link, ME, "one\ntwo\n\nthree")

        assert ["one\ntwo\n\nthree"] == records(tmux)


# Who else types there


async def test_a_text_missing_in_a_single_read_was_not_accepted(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that is half drawn shows an empty box. The first Enter does nothing here, so that the text stands on."""
    see, blinks = TmuxAgent.see_now, itertools.count()
    pressed = asyncio.Event()

    async def see_a_blink(agent: TmuxAgent) -> ScreenObservation:
        seen = await see(agent)
        if not pressed.is_set() or seen.reading.composer is None or next(blinks):
            return seen
        blank = msgspec.structs.replace(seen.reading.composer, draft="")
        return seen._replace(reading=msgspec.structs.replace(seen.reading, composer=blank))

    async def press(hand: ExclusivePaneWriter, keys: bytes, unless: str = "") -> None:
        await pressing(hand, keys, unless)
        pressed.set()

    pressing = ExclusivePaneWriter.press
    monkeypatch.setattr(TmuxAgent, "see_now", see_a_blink)
    monkeypatch.setattr(ExclusivePaneWriter, "press", press)
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux, "drop=1"))
        await tmux.until_state(ME, SessionState.IDLE)
        receipt = await prompted(link, ME, "go on")

        assert ["go on"] == records(tmux)
        assert R.LOST is not receipt.state
        assert next(blinks) > 1


async def test_within_seconds_of_a_users_key_nothing_is_typed(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing shows on the screen yet: the key may be the first of a draft, or have cleared one."""
    monkeypatch.setattr(pane_writer, "PERSON_S", 3600.0)
    monkeypatch.setattr(pane_writer, "PATIENCE_S", 0.2)
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *box(tmux))
        await tmux.until_state(ME, SessionState.IDLE)
        link.send(SendKeys(session=session, data=b"\x15"))
        waits = await prompted(link, ME, "later", when="idle")
        await auntil(lambda: "typed into" in states(tmux, waits.id)[-1][1])
        with pytest.raises(SessionBusyError, match="being typed into"):
            await prompted(link, ME, "now")
        assert [] == records(tmux)

        monkeypatch.setattr(pane_writer, "PERSON_S", 0.0)
        await auntil(lambda: ["later"] == records(tmux))


async def test_while_a_user_types_in_an_attached_terminal_nothing_is_typed(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kasmon hears none of those keys; tmux says when the last one was."""
    monkeypatch.setattr(prompt_delivery, "PERSON_S", 3600.0)
    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux))
        await tmux.until_state(ME, SessionState.IDLE)
        with attached(tmux.server, ME) as keys:
            await auntil(lambda: (facts := tmux.facts(ME)) is not None and facts.attached)
            os.write(keys, b"\x15")
            waits = await prompted(link, ME, "later", when="idle")
            await auntil(lambda: "typed into" in states(tmux, waits.id)[-1][1])
            assert [] == records(tmux)
        await auntil(lambda: ["later"] == records(tmux))


async def test_a_draft_that_starts_before_the_paste_is_kept_apart(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tmux itself compares, in the moment of the paste, where the cursor stands."""
    looks, see = itertools.count(), TmuxAgent.see_now

    async def see_and_be_typed_into(agent: TmuxAgent) -> ScreenObservation:
        seen = await see(agent)
        if seen.reading.composer is not None and next(looks) == 0:
            await asyncio.to_thread(tmux.server.run, "send-keys", "-t", f"={ME}:", "-l", "half a thought")
            await asyncio.to_thread(until, lambda: b"half a thought" in screen(tmux))
        return seen

    async with tmux.serving() as link:
        await tmux.run(link, ME, *box(tmux))
        await tmux.until_state(ME, SessionState.IDLE)
        monkeypatch.setattr(TmuxAgent, "see_now", see_and_be_typed_into)
        with pytest.raises(PromptBoxError, match="half a thought"):
            await prompted(link, ME, "now")

        assert b"half a thought" in screen(tmux)
        assert b"now" not in screen(tmux)
        unblock(tmux)
        await auntil(lambda: b"half a thought" not in screen(tmux))
        await prompted(link, ME, "now")
        assert ["now"] == records(tmux)
