"""Sandboxes on the dashboard: keys, the box for code, what ran and was kept, and what a new one gets."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
from textual.pilot import Pilot

from kasmon.errors import UnableError
from kasmon.model.commands import Allow, Checkpoint, Mode, Pause, Restore, Resume, Run, SandboxCommand
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.session_state import SessionState
from kasmon.supervisor.sandboxes.create import NewSandbox
from kasmon.supervisor.sandboxes.history import SandboxHistory, StoredSnapshots
from kasmon.tui.dialogs.new_session import NewSessionDialog
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings, SandboxChoices, SandboxPreview, TierOffer
from kasmon.tui.review.screen import ReviewScreen
from kasmon.tui.sandbox.screen import SandboxScreen
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.transcript.prompt_box import CodeBox
from tests.model.review.test_file_changes import DIFF
from tests.support.dashboard_scenes import history, kasmon, run_app
from tests.support.sample_fleet import StillClock, fleet, idle, working
from tests.support.sample_sandboxes import interpreters, machine, machines, past, remembered, sandbox_state, sandboxes
from tests.support.tui.fake_gateway import GETS, JAILED, Call, app_of, called, created, gateway_of, text_of
from tests.support.wait import auntil

NUMBERS = SessionId("numbers")
ASLEEP = interpreters(
    "numbers", SessionState.STANDBY, sandbox_state=sandbox_state(phase=SandboxPhase.PAUSED, held=True)
)


@asynccontextmanager
async def shown(over: Fleet | None = None, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[None]]:
    app = kasmon(
        over or fleet(interpreters("numbers"), working("docs")), settings=DashboardSettings(workdir="/home/you")
    )
    async with run_app(app, size, notifications=True) as pilot:
        yield pilot


def changed(*commands: SandboxCommand) -> Sequence[Call]:
    return [called(Operations.change_sandbox, NUMBERS, command) for command in commands]


async def calls(pilot: Pilot[None], count: int) -> list[Call]:
    gateway = gateway_of(pilot.app)
    await auntil(lambda: len(gateway.calls) >= count, what="the calls")
    return gateway.calls


def footer(pilot: Pilot[None]) -> str:
    return text_of(pilot.app).splitlines()[-1]


async def sure(pilot: Pilot[None]) -> None:
    """Say yes once the question takes it."""
    await pilot.pause()
    cast(StillClock, app_of(pilot).clock).ticked += 1.0
    await pilot.press("y")
    await pilot.pause()


async def test_a_sandbox_is_paused_and_a_checkpoint_is_made_by_one_key_each() -> None:
    async with shown() as pilot:
        assert "z pause   s checkpoint   H history" in footer(pilot)
        assert "resume" not in footer(pilot)
        await pilot.press("z", "s")

        assert changed(Pause(), Checkpoint()) == await calls(pilot, 2)


async def test_a_paused_sandbox_is_resumed_and_not_paused_again() -> None:
    async with shown(fleet(ASLEEP)) as pilot:
        assert "u resume" in footer(pilot)
        assert "z pause" not in footer(pilot)
        await pilot.press("u")

        assert changed(Resume()) == await calls(pilot, 1)


async def test_keys_are_offered_only_if_they_apply_and_give_the_reason_otherwise() -> None:
    confined = idle("docs", sandbox="jail", sandbox_state=sandbox_state(), ago=1)
    async with shown(fleet(idle("readme"), confined)) as pilot:
        assert "z pause" not in footer(pilot)
        await pilot.press("z")
        await auntil(lambda: "readme has no sandbox." in text_of(pilot.app))
        await pilot.press("j", "f", "s")
        await auntil(lambda: "docs is a sandboxed agent" in text_of(pilot.app))
        assert [] == gateway_of(pilot.app).calls
        assert "checkpoint" not in footer(pilot)
        assert "z pause" in footer(pilot)
        await pilot.press("z")

        assert [called(Operations.change_sandbox, SessionId("docs"), Pause())] == await calls(pilot, 1)


async def test_all_are_paused_only_after_a_confirmation_with_their_number() -> None:
    async with shown(sandboxes()) as pilot:
        await pilot.press("Z")
        await auntil(lambda: "Pause 4 sandboxes? They resume on next use." in text_of(pilot.app))
        assert "1 is in a turn and will pause when it ends." in text_of(pilot.app)
        await pilot.press("y")  # too soon: it was typed for something else
        await auntil(lambda: "This key came before the question could be read." in text_of(pilot.app))
        assert [] == gateway_of(pilot.app).calls
        await sure(pilot)

        frozen = {arguments["session"] for _, arguments in await calls(pilot, 4)}
        assert {"numbers", "import-csv", "scratch", "nightly"} == frozen


async def test_enter_runs_the_code_by_the_interpreter_chosen_with_tab() -> None:
    async with shown() as pilot:
        await pilot.press("enter")
        await auntil(lambda: pilot.app.query(CodeBox), what="the box")
        await pilot.press(*"a=1", "ctrl+j", *"a", "enter", "tab", *"ls", "enter", "tab", "tab", *"b", "enter")
        await pilot.pause()

        assert changed(
            Run(interpreter="python", code="a=1\na"),
            Run(interpreter="bash", code="ls"),
            Run(interpreter="python", code="b"),
        ) == await calls(pilot, 3)
        assert "⏎ run   tab interpreter   shift+tab read" in footer(pilot)


async def test_up_recalls_run_code_and_code_that_could_not_run_returns_to_the_box() -> None:
    async with shown() as pilot:
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("up")
        await auntil(lambda: "frame.describe()" in text_of(pilot.app).rpartition("[python]")[2], what="what ran")
        gateway_of(pilot.app).refusing = UnableError("it is paused, and is not resumed on use.")
        await pilot.press("enter")
        await auntil(lambda: "It is paused, and is not resumed" in text_of(pilot.app))

        assert "frame.describe()" in text_of(pilot.app).rpartition("[python]")[2]


async def test_shift_tab_reads_and_the_transcript_shows_the_code_and_the_loss() -> None:
    async with shown() as pilot:
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("shift+tab")
        await pilot.pause()

        assert "next turn" in footer(pilot) or "prev turn" in footer(pilot)
        assert "print(len(rows)" in text_of(pilot.app)
        assert "interpreter state lost" in text_of(pilot.app)


async def test_the_history_shows_runs_checkpoints_and_refusals_newest_first() -> None:
    async with shown() as pilot:
        await history(pilot)
        rows = text_of(pilot.app).splitlines()
        words = ("c6 ", "frame = ", "c4 ", "blocked", "c1 ")
        at = [next(number for number, row in enumerate(rows) if word in row) for word in words]

        assert sorted(at) == at
        assert "exit 6" in text_of(pilot.app)
        assert "c3  " not in text_of(pilot.app)  # before a turn, with nothing changed since the one after the last
        assert "network pypi" in text_of(pilot.app)
        assert "processes 6 of 256" in text_of(pilot.app)


async def test_a_turns_diff_is_shown_and_escape_returns_to_the_history() -> None:
    async with shown() as pilot:
        gateway_of(pilot.app).diffs = {"numbers": DIFF}
        await history(pilot)
        await pilot.press("j", "j", "D")
        await auntil(lambda: isinstance(pilot.app.screen, ReviewScreen))
        await pilot.press("escape")
        await pilot.pause()

        assert [3] == gateway_of(pilot.app).asked_turns
        assert isinstance(pilot.app.screen, SandboxScreen)


async def test_restoring_a_checkpoint_is_confirmed() -> None:
    async with shown() as pilot:
        await history(pilot)
        await pilot.press("j", "j", "j", "r")
        await auntil(lambda: "Restore numbers to c4?" in text_of(pilot.app))
        assert [] == gateway_of(pilot.app).calls
        await sure(pilot)

        assert changed(Restore(checkpoint="c4")) == await calls(pilot, 1)


async def test_a_fork_without_a_name_gets_the_first_free_one() -> None:
    async with shown(fleet(MACHINE, working("numbers-2"))) as pilot:
        await pilot.press("f")
        await auntil(lambda: "all memory of numbers" in text_of(pilot.app))
        await pilot.press("ctrl+u", "enter")

        assert [called(Operations.fork_sandbox, NUMBERS, "numbers-3")] == await calls(pilot, 1)


async def test_a_fork_and_a_replay_start_at_the_chosen_entry() -> None:
    async with shown() as pilot:
        await history(pilot)
        await pilot.press("j", "j", "j", "f", "enter")
        await pilot.pause()
        await pilot.press("p")
        await auntil(lambda: "Side effects outside the sandbox will be repeated" in text_of(pilot.app))
        await pilot.press("enter")

        assert [
            called(Operations.fork_sandbox, NUMBERS, "numbers-2", "c4"),
            called(Operations.replay_sandbox, NUMBERS, "numbers-2", "c4"),
        ] == await calls(pilot, 2)


async def test_a_refused_host_is_allowed_from_the_history_and_only_after_a_confirmation() -> None:
    async with shown() as pilot:
        await history(pilot)
        await pilot.press("a")  # not on this entry
        await pilot.press("G", "k", "k", "a")
        await auntil(lambda: "to reach example.org:443?" in text_of(pilot.app))
        assert [] == gateway_of(pilot.app).calls
        await sure(pilot)

        assert changed(Allow(hosts=("example.org:443",))) == await calls(pilot, 1)


async def test_the_history_of_an_unused_sandbox_reports_that() -> None:
    async with shown(fleet(interpreters("new"))) as pilot:
        await history(pilot)

        assert "Nothing ran here yet." in text_of(pilot.app)
        await pilot.press("r", "f", "p", "D")
        await pilot.pause()
        assert isinstance(pilot.app.screen, SandboxScreen)


async def test_new_entries_are_shown_while_the_history_is_open_and_the_choice_stays() -> None:
    async with shown() as pilot:
        await history(pilot)
        await pilot.press("j", "j")
        more = past().checkpoints[-1]
        gateway_of(pilot.app).pasts = {"numbers": past()}
        moved = interpreters(
            "numbers", sandbox_state=sandbox_state(checkpoints_counted=7, phase=SandboxPhase.PAUSED, held=True)
        )
        gateway_of(pilot.app).fleets.put_nowait(fleet(moved, working("docs")))
        await auntil(lambda: "paused in RAM" in text_of(pilot.app))
        await pilot.pause()

        assert "▌ 14:10:18  python" in text_of(pilot.app)
        assert "u resume" in footer(pilot)
        assert more.id in text_of(pilot.app)


async def test_a_new_session_shows_what_its_sandbox_gets_and_starts_after_the_consent() -> None:
    async with shown() as pilot:
        gateway_of(pilot.app).offered, gateway_of(pilot.app).confinement = JAILED, GETS
        await pilot.press("n")
        await auntil(lambda: "login.json" in text_of(pilot.app))
        await pilot.press(*"x", "enter")
        await auntil(lambda: "agree and start" in text_of(pilot.app))
        assert [] == gateway_of(pilot.app).calls
        await sure(pilot)

        made = created("x", "claude", mode=Mode.TMUX, workdir="/home/you", sandbox="jail", agrees=True)
        assert [made] == await calls(pilot, 1)


async def test_enter_before_the_sandboxs_files_are_known_asks_for_consent_all_the_same() -> None:
    async with shown() as pilot:
        gateway_of(pilot.app).offered, gateway_of(pilot.app).confinement = JAILED, GETS
        gateway_of(pilot.app).knows.clear()
        await pilot.press("n")
        await auntil(lambda: "New session" in text_of(pilot.app))
        await pilot.press(*"x", "enter")
        await auntil(lambda: "Starts as soon as" in text_of(pilot.app))
        gateway_of(pilot.app).knows.set()
        await auntil(lambda: "agree and start" in text_of(pilot.app))

        assert [] == gateway_of(pilot.app).calls


async def test_the_consent_applies_to_the_folder_at_that_time() -> None:
    async with shown() as pilot:
        gateway_of(pilot.app).offered, gateway_of(pilot.app).confinement = JAILED, GETS
        gateway_of(pilot.app).confinement_in = {"/other": SandboxPreview(lines=("It sees '/other'.",), is_agreed=False)}
        await pilot.press("n")
        await auntil(lambda: "login.json" in text_of(pilot.app))
        dialog = cast(NewSessionDialog, pilot.app.screen)
        dialog.query_one("#name", LineInput).value = "x"
        dialog.folder.box.focus()
        dialog.folder.box.value = "/other"
        await pilot.press("enter")
        await auntil(lambda: "agree and start" in text_of(pilot.app))

        assert "It sees '/other'." in text_of(pilot.app)
        assert "login.json" not in text_of(pilot.app)


async def test_the_user_can_choose_no_sandbox_or_interpreters() -> None:
    async with shown() as pilot:
        gateway_of(pilot.app).offered, gateway_of(pilot.app).confinement = JAILED, GETS
        await pilot.press("n")
        await auntil(lambda: "login.json" in text_of(pilot.app))
        await pilot.press(*"x", *TO_SANDBOX, "left", "enter")
        await auntil(lambda: len(pilot.app.screen_stack) == 1)
        await pilot.press("n")
        await auntil(lambda: "interpreters" in text_of(pilot.app))
        await pilot.press(*"y", "tab", "left", "tab", "tab", "enter")

        assert [
            created("x", "claude", mode=Mode.TMUX, workdir="/home/you", sandbox=""),
            called(Operations.create_interpreters, NewSandbox(name="y")),
        ] == await calls(pilot, 2)


TO_SANDBOX = ["tab"] * 6
"""From the name by agent, mode, folder, prompt and *more*, which is open where a sandbox is meant."""
HAD = SandboxChoices(
    tiers=(
        TierOffer(tier="jail"),
        TierOffer(
            tier="microvm",
            why_not="A microvm sandbox is unavailable: there is no image. Build it: `kasmon sandbox image build`.",
        ),
        TierOffer(tier="e2b", has_agents=False),
    ),
    sizes=("default", "build", "max"),
    size="build",
    hosts=("pypi",),
)


async def test_every_tier_is_offered_and_an_unavailable_one_gives_the_reason_and_does_not_start() -> None:
    async with shown() as pilot:
        gateway_of(pilot.app).offered, gateway_of(pilot.app).may_be = JAILED, HAD
        await pilot.press("n")
        await auntil(lambda: all(each.tier in text_of(pilot.app) for each in HAD.tiers))
        await pilot.press(*"x", *TO_SANDBOX, "right")
        await auntil(lambda: "there is no image" in text_of(pilot.app))
        await pilot.press("tab", "enter")
        await auntil(lambda: "Choose another sandbox." in text_of(pilot.app))
        await pilot.press("left", "left")
        await auntil(lambda: "unavailable: microvm, e2b" in text_of(pilot.app))
        assert "Choose another sandbox." not in text_of(pilot.app)
        assert [] == gateway_of(pilot.app).calls
        await pilot.press("left")
        await auntil(lambda: "This version of kasmon runs only interpreters" in text_of(pilot.app))
        await pilot.press("left", "left", "tab", "enter")

        made = created("x", "claude", mode=Mode.TMUX, workdir="/home/you", sandbox="jail")
        assert [made] == await calls(pilot, 1)
        assert [("claude", "jail")] == gateway_of(pilot.app).confining[-1:]


async def test_interpreters_have_the_tier_the_size_and_the_hosts_of_the_config_unless_others_are_chosen() -> None:
    async with shown() as pilot:
        gateway_of(pilot.app).offered, gateway_of(pilot.app).may_be = JAILED[-1:], HAD
        for keys in ([*"x", *TO_SANDBOX, "tab"], [*"y", *TO_SANDBOX, "left", "tab"]):
            await pilot.press("n")
            await auntil(lambda: "Network" in text_of(pilot.app))
            await pilot.press(*keys)
            if "y" in keys:
                await auntil(lambda: "Size" not in text_of(pilot.app))
                await pilot.press("end", *", a.example")
            else:
                await pilot.press("right", "tab")
            await pilot.press("enter")
            await auntil(lambda: len(pilot.app.screen_stack) == 1)

        usual = called(Operations.create_interpreters, NewSandbox(name="x", tier="jail", size="max"))
        reaches = ("pypi", "a.example")
        other = called(Operations.create_interpreters, NewSandbox(name="y", tier="e2b", hosts=reaches))
        assert [usual, other] == await calls(pilot, 2)


MACHINE = machine("numbers")
ON_DISK = next(each for each in machines().sessions if each.name == "numbers")
TRUNCATED = "it is truncated: memory has 4096 bytes of 91226112"


async def test_a_key_pauses_to_disk_if_the_tier_supports_it_and_otherwise_gives_the_reason() -> None:
    async with shown(fleet(MACHINE)) as pilot:
        assert "z pause   P pause to disk" in footer(pilot)
        await pilot.press("P")

        assert changed(Pause(to_disk=True)) == await calls(pilot, 1)
    async with shown() as pilot:
        assert "P pause" not in footer(pilot)
        await pilot.press("P")
        await auntil(lambda: "A jail sandbox cannot pause to disk" in text_of(pilot.app))

        assert [] == gateway_of(pilot.app).calls


async def test_a_sandbox_paused_to_disk_is_resumed_at_once_if_its_memory_is_valid() -> None:
    async with shown(fleet(ON_DISK)) as pilot:
        gateway_of(pilot.app).pasts = {"numbers": remembered()}
        assert "P pause" not in footer(pilot)
        await pilot.press("u")

        assert changed(Resume()) == await calls(pilot, 1)


@pytest.mark.parametrize(
    "there", [remembered(TRUNCATED), SandboxHistory(remembered=StoredSnapshots(missing=TRUNCATED))]
)
async def test_with_an_unusable_memory_the_user_confirms_the_resume_without_it(
    there: SandboxHistory,
) -> None:
    async with shown(fleet(ON_DISK)) as pilot:
        gateway_of(pilot.app).pasts = {"numbers": there}
        await pilot.press("u")
        await auntil(lambda: "The memory snapshot of numbers cannot be used: it is truncated" in text_of(pilot.app))
        assert "Resuming keeps the files. Interpreter state" in text_of(pilot.app)
        assert [] == gateway_of(pilot.app).calls
        await sure(pilot)

        assert changed(Resume()) == await calls(pilot, 1)


async def test_a_fork_copies_all_memory_if_possible_and_the_dialog_shows_the_steps() -> None:
    async with shown(fleet(MACHINE)) as pilot:
        await pilot.press("f")
        await auntil(lambda: "all memory of numbers" in text_of(pilot.app))
        assert "is paused to disk, then resumes at once" in text_of(pilot.app)
        await pilot.press("enter")

        assert [called(Operations.fork_sandbox, NUMBERS, "numbers-2")] == await calls(pilot, 1)
    async with shown() as pilot:
        await pilot.press("f")
        await auntil(lambda: "are not copied" in text_of(pilot.app))


async def test_the_history_lists_memories_with_size_age_and_why_one_is_unusable() -> None:
    async with shown(fleet(ON_DISK), (160, 40)) as pilot:
        await history(pilot, remembered(TRUNCATED))

        assert "forked from base, with its memory" in text_of(pilot.app)
        assert f"! the memory snapshot cannot be used: {TRUNCATED}" in text_of(pilot.app)
        [row] = [row for row in text_of(pilot.app).splitlines() if "snapshot   cannot be used" in row]
        assert " 2m  87 MiB" in row
        assert "1m  71 MiB" in text_of(pilot.app)


async def test_a_fork_in_the_history_is_of_the_chosen_checkpoint_or_of_now_with_its_memory() -> None:
    async with shown(fleet(MACHINE)) as pilot:
        await history(pilot, remembered())
        assert "P pause" in footer(pilot)
        await pilot.press("f")
        await auntil(lambda: "Fork numbers at c6" in text_of(pilot.app))
        await pilot.press("escape", "F")
        await auntil(lambda: "all memory of numbers" in text_of(pilot.app))
        await pilot.press("escape")
        await pilot.press("P")

        assert changed(Pause(to_disk=True)) == await calls(pilot, 1)
