"""An answer reaches the request that it was given to, or nothing: on real terminals that change, sleep, lie and die."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.input import answer_delivery
from kasmon.backends.tmux.input.pane_writer import ExclusivePaneWriter
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.errors import PromptChangedError, RefusedError, SessionEndedError, TimedOutError, UnableError
from kasmon.model.commands import Answer, Launch, Mode
from kasmon.model.permission import Decision, Request, RequestId, SessionId
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, user_paths
from kasmon.tmux.server import TmuxServer
from tests.support.agents.backend_contract import LIMIT_S, Listener
from tests.support.agents.menu_agent import ALWAYS, NO, YES, MenuAgent, dialog
from tests.support.wait import auntil

pytestmark = pytest.mark.story

ME = SessionId("abcdefgh")


class Room(NamedTuple):
    """Where one kasmon and one fake live."""

    here: Paths
    folder: Path


@pytest.fixture
def room() -> Iterator[Room]:
    folder = Path(tempfile.mkdtemp(prefix="ka-", dir="/tmp"))
    here = user_paths()
    here.make()
    here.folder(ME).mkdir()
    yield Room(here, folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that does nothing is given up soon."""
    monkeypatch.setattr(answer_delivery, "TAKEN_S", 0.2)
    monkeypatch.setattr(answer_delivery, "MOVED_S", 0.3)
    monkeypatch.setattr(answer_delivery, "STILL_S", 0.1)


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """These fakes hear a key at once."""
    monkeypatch.setattr(answer_delivery, "YOUNG_S", 0.0)


class Stage:
    """A fake terminal agent in a pane, heard."""

    def __init__(self, asker: MenuAgent, heard: Listener) -> None:
        assert isinstance(heard.agent, TmuxAgent)
        self.asker, self.heard, self.agent = asker, heard, heard.agent

    async def asked(self, ask: str = "") -> Request:
        """The request that stands there; about *ask*."""
        return await auntil(
            lambda: next((one for one in self.heard.session.requests if ask in one.shown), None),
            LIMIT_S,
            f"{ask} is asked",
        )

    async def answer(self, request: Request, decision: Decision, **more: Any) -> None:
        await self.agent.send(Answer(request=request.id, digest=request.digest, decision=decision, **more))

    def before_each_key(self, act: Any) -> None:
        """Have *act* done between the look and the key."""
        press = self.agent.pane_writer.press

        async def late(key: bytes, unless: str = "") -> None:
            await act(key)
            await press(key, unless)

        self.agent.pane_writer.press = late  # type: ignore[method-assign]

    async def swapped(self, text: str) -> None:
        """Have it show another dialog, with *text*."""
        self.asker.swap(self.agent.pid)
        await self.shows(text)

    async def shows(self, text: str) -> None:
        """Wait until *text* stands on the screen, by tmux's own word."""

        async def there() -> bool:
            seen = await self.agent.state_monitor.see_now()
            return any(text in row.text for row in seen.shot.rows)

        async with asyncio.timeout(LIMIT_S):
            while not await there():
                pass


@contextlib.asynccontextmanager
async def staged(room: Room, *asks: dict[str, Any], **does: Any) -> AsyncIterator[Stage]:
    here, folder = room
    backend = TmuxBackend(here)
    asker = MenuAgent(folder, *asks, **does)
    launch = Launch(
        session=ME, name="w", agent="scripted", mode=Mode.TMUX, backend="tmux", argv=asker.argv, workdir=str(folder)
    )
    try:
        async with Listener(await backend.open(launch), launch).listening() as heard:
            yield Stage(asker, heard)
    finally:
        await backend.aclose()
        await asyncio.to_thread(TmuxServer(here.tmux_socket).kill_server)


async def test_each_answer_presses_the_key_of_its_label_once(room: Room) -> None:
    async with staged(room, dialog("git push"), dialog("git pull"), dialog("git log")) as stage:
        given = {"git push": Decision.ALLOW, "git pull": Decision.ALWAYS, "git log": Decision.DENY}
        for ask, decision in given.items():
            request = await stage.asked(ask)
            assert request.answerable
            await stage.answer(request, decision)
        await stage.heard.until(SessionState.IDLE)

        assert [("git push", YES), ("git pull", ALWAYS), ("git log", NO)] == stage.asker.taken()
        assert [] == [fact for fact in stage.heard.facts if type(fact).__name__ == "RequestWithdrawn"]


async def test_a_digit_means_what_its_label_says_now(room: Room) -> None:
    """The third choice was "No", and became "switch to auto mode" one version later."""
    auto = "Yes, and switch to auto mode"
    async with staged(room, dialog("a", YES, ALWAYS, auto, NO), dialog("b", NO, YES)) as stage:
        await stage.answer(await stage.asked("Bash a"), Decision.DENY)
        await stage.answer(await stage.asked("Bash b"), Decision.ALLOW)

        assert [("a", NO), ("b", YES)] == stage.asker.taken()


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_dialog_that_is_replaced_before_the_key_gets_none(
    room: Room, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        press = ExclusivePaneWriter.press
        monkeypatch.setattr(ExclusivePaneWriter, "press", lambda writer, keys, unless="": press(writer, keys))
    refused = pytest.raises(PromptChangedError, match="Nothing was sent") if guarded else contextlib.nullcontext()
    async with staged(room, dialog("git push"), dialog("rm -rf /")) as stage:
        request = await stage.asked("git push")
        stage.before_each_key(lambda _: stage.swapped("rm -rf"))
        with refused:
            await stage.answer(request, Decision.ALLOW)

        assert ([] if guarded else [("rm -rf /", YES)]) == stage.asker.taken()
        assert guarded == (stage.asker.heard() == [])


@pytest.mark.usefixtures("hasty")
async def test_a_mark_that_moved_before_enter_stops_the_answer(room: Room) -> None:
    async with staged(room, dialog("git push"), dialog("rm -rf /"), ignores=9) as stage:

        async def late(key: bytes) -> None:
            if key == b"\r":
                await stage.swapped("rm -rf")

        request = await stage.asked("git push")
        stage.before_each_key(late)
        await stage.answer(request, Decision.DENY)  # gone by itself: whether the digit did it, nobody can tell
        await stage.asked("rm -rf /")

        assert [] == stage.asker.taken()
        assert not [key for key in stage.asker.heard() if key == "\r"]


async def test_a_menu_whose_digits_changed_their_meaning_before_the_key_gets_none(room: Room) -> None:
    async with staged(room, dialog("git push", YES, NO), dialog("git push", NO, YES)) as stage:
        request = await stage.asked()
        stage.before_each_key(lambda _: stage.swapped("1. No"))
        with pytest.raises(PromptChangedError):
            await stage.answer(request, Decision.ALLOW)

        assert [] == stage.asker.heard()


async def last_moments(room: Room, acts: Sequence[str]) -> None:
    """Answer as many dialogs as there are *acts*; what an act says is done between the look and the key."""
    async with staged(room, *(dialog(f"command {number}:") for number in range(len(acts) + 1))) as stage:
        act = "nothing"

        async def last_moment(_: bytes) -> None:
            nonlocal act
            now, act = act, "nothing"
            if now == "swap":
                await stage.swapped(f"command {number + 1}:")
            elif now == "draw":
                await asyncio.to_thread(stage.asker.draw, stage.agent.pid)

        stage.before_each_key(last_moment)
        for number, act in enumerate(acts):
            request = await stage.asked(f"command {number}:")
            if act == "swap":
                with pytest.raises(PromptChangedError):
                    await stage.answer(request, Decision.ALLOW)
            else:
                await stage.answer(request, Decision.ALLOW)

        answered = [(f"command {number}:", YES) for number, what in enumerate(acts) if what != "swap"]
        assert answered == stage.asker.taken()
        assert len(answered) == len(stage.asker.heard())


async def test_dialogs_that_change_at_the_last_moment_get_no_key(room: Room) -> None:
    await last_moments(room, ("draw", "swap", "nothing", "swap"))


@pytest.mark.usefixtures("hasty")
async def test_digits_that_are_ignored_at_first_are_sent_in_another_form_and_only_once(room: Room) -> None:
    async with staged(room, dialog("git push"), dialog("git pull"), ignores=1) as stage:
        await stage.answer(await stage.asked("git push"), Decision.ALWAYS)
        await stage.asked("git pull")

        assert [("git push", ALWAYS)] == stage.asker.taken()
        assert "2" == stage.asker.heard()[0]
        assert "\r" == stage.asker.heard()[-1]


@pytest.mark.usefixtures("hasty")
async def test_a_mark_that_does_not_move_at_first_moves_to_the_choice_and_no_further(room: Room) -> None:
    async with staged(room, dialog("git push"), dialog("git pull"), ignores=9, ignores_arrows=1) as stage:
        await stage.answer(await stage.asked("git push"), Decision.DENY)
        await stage.asked("git pull")

        assert [("git push", NO)] == stage.asker.taken()


@pytest.mark.usefixtures("hasty")
async def test_an_agent_that_reads_no_input_gets_one_key_and_the_request_stays_open(room: Room) -> None:
    async with staged(room, dialog("git push"), reads=False) as stage:
        request = await stage.asked()
        with pytest.raises(TimedOutError, match="still on the screen"):
            await stage.answer(request, Decision.ALLOW)

        assert [request.id] == [one.id for one in stage.heard.session.requests]


async def test_a_dialog_that_a_key_opened_is_another_request(room: Room) -> None:
    second = dialog("are you sure", YES, NO)
    async with staged(room, dialog("git push", opens={YES: second})) as stage:
        await stage.answer(await stage.asked("git push"), Decision.ALLOW)
        request = await stage.asked("are you sure")

        assert [("git push", YES)] == stage.asker.taken()
        assert request.answerable


async def test_an_agent_that_dies_of_the_key_is_reported_as_ended(room: Room) -> None:
    async with staged(room, dialog("git push"), dies=True) as stage:
        request = await stage.asked()
        with pytest.raises(SessionEndedError):
            await stage.answer(request, Decision.ALLOW)

        assert ["1"] == stage.asker.heard()


async def test_a_menu_that_is_only_redrawn_before_the_key_is_answered(room: Room) -> None:
    async with staged(room, dialog("git push", "Yes", "No")) as stage:
        request = await stage.asked()
        stage.before_each_key(lambda _: asyncio.to_thread(stage.asker.draw, stage.agent.pid))
        await stage.answer(request, Decision.DENY)

        assert [("git push", NO)] == stage.asker.taken()


async def test_an_invalid_answer_sends_no_key(room: Room) -> None:
    async with staged(room, dialog("git push", "Yes", "No")) as stage:
        request = await stage.asked()
        for wrong in ({"digest": "of another"}, {"request": RequestId("screen-9")}, {"digest": ""}):
            given = Answer(request=request.id, digest=request.digest, decision=Decision.ALLOW)
            with pytest.raises(PromptChangedError):
                await stage.agent.send(msgspec.structs.replace(given, **wrong))
        with pytest.raises(UnableError):
            await stage.answer(request, Decision.ALWAYS)
        with pytest.raises(UnableError, match="no reason"):
            await stage.answer(request, Decision.DENY, reason="not now")
        await asyncio.to_thread(TmuxServer(room.here.tmux_socket).run, "copy-mode", "-t", stage.agent.pane)
        with pytest.raises(RefusedError, match="nothing was sent"):
            await stage.answer(request, Decision.ALLOW)

        assert [] == stage.asker.heard()
