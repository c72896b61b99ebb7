"""How a sandbox looks: badge, phase, countdowns, meters. Values in, text out."""

import msgspec
import pytest
from textual.strip import Strip

from kasmon.model.sandbox.policy import MIB, SandboxPhase, Tier
from kasmon.model.sandbox.state import Confinement
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.sandbox import status
from kasmon.tui.session_list.order import SessionFilter, SessionRow
from kasmon.tui.session_list.row import RowContent, columns, moments, row
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.theme.theme import DEFAULT
from tests.support.sample_fleet import NOW, asking, session, working
from tests.support.sample_sandboxes import LEAK, interpreters, machine, machines, sandbox_state, sandboxes

LOOK = ThemeStyles(shipped(DEFAULT))
PLAIN = ThemeStyles(shipped(DEFAULT), utf8=False)
LEAKS = Confinement(ok=False, mismatches=LEAK)


def strip_of(shown: Session, width: int, names: int = 10, look: ThemeStyles = LOOK, mode: int = 0) -> Strip:
    fitted = columns(width, names, agent=12, mode=mode)
    return row(RowContent(shown, SessionRow(shown.id), fitted, width), NOW, look)


def drawn(shown: Session, width: int = 160, look: ThemeStyles = LOOK) -> str:
    return strip_of(shown, width, len(shown.name), look).text


def words(shown: Session) -> str:
    return "".join(text for text, _ in status.row_words(shown, NOW))


@pytest.mark.parametrize("width", [40, 60, 78, 80, 99, 100, 120, 160])
@pytest.mark.parametrize("shown", sandboxes().sessions, ids=lambda shown: shown.id)
def test_a_row_with_a_sandbox_is_exactly_as_wide_as_the_list(width: int, shown: Session) -> None:
    assert width == strip_of(shown, width).cell_length


@pytest.mark.parametrize(
    ("confinement", "shape", "plain", "role"),
    [
        (Confinement(ok=True), "jail▣", "jail#", "good"),
        (None, "jail□", "jail?", "faint"),
        (LEAKS, "jail⊠", "jailX", "bad.bold"),
    ],
    ids=["proven", "nobody looked", "broken"],
)
def test_the_badge_is_the_tier_and_a_shape_by_the_proof(
    confinement: Confinement | None, shape: str, plain: str, role: str
) -> None:
    shown = interpreters("x", sandbox_state=sandbox_state(confinement=confinement))

    assert shape == "".join(text for text, _ in status.badge(shown, LOOK))
    assert plain == "".join(text for text, _ in status.badge(shown, PLAIN))
    assert role == status.badge(shown, LOOK)[-1][1]


def test_a_session_with_a_requested_sandbox_and_none_yet_is_not_shown_as_proven() -> None:
    assert "□" in drawn(working("x", sandbox="jail"))


def test_without_a_sandbox_there_is_no_badge_and_no_panel() -> None:
    plain = working("x")

    assert [] == status.badge(plain, LOOK)
    assert [] == status.panel(plain, LOOK, NOW, 120)
    assert "" == words(plain)


def test_a_faulty_sandbox_is_described_in_the_row_and_in_the_panel() -> None:
    shown = working("x", sandbox_state=sandbox_state(confinement=LEAKS), sandbox="jail")

    assert "not confined: the network can be reached" in drawn(shown)
    assert "not confined as expected: the network can be reached, it may write to /etc" in text_of(shown)


def test_the_fault_is_marked_also_if_the_list_has_only_names() -> None:
    assert "⊠" in drawn(working("x", sandbox_state=sandbox_state(confinement=LEAKS), sandbox="jail"), 44)


def test_what_it_asks_stays_in_sight_beside_that_and_once_it_has_ended_nobody_is_alarmed() -> None:
    shown = asking("x", sandbox_state=sandbox_state(confinement=LEAKS), sandbox="jail")
    assert "not confined" in drawn(shown)
    assert "rm -rf build" in drawn(shown)

    shown = interpreters("x", SessionState.ENDED, sandbox_state=sandbox_state(confinement=LEAKS))
    assert status.is_broken(shown)
    assert "" == words(shown)


def text_of(shown: Session, width: int = 160) -> str:
    return "\n".join(
        "".join(text for text, _ in (*line.left, *line.right)) for line in status.panel(shown, LOOK, NOW, width)
    )


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        (SandboxPhase.CREATING, "creating sandbox"),
        (SandboxPhase.RESUMING, "resuming"),
        (SandboxPhase.HEALING, "recovering sandbox"),
    ],
)
def test_a_transition_is_shown_in_the_row(phase: SandboxPhase, told: str) -> None:
    assert told in words(
        interpreters("x", SessionState.STARTING, sandbox_state=sandbox_state(phase=phase, is_intended=True))
    )


def test_the_panel_names_the_phase_and_the_content_of_a_pause() -> None:
    assert "paused in RAM" == status.phase_words(sandbox_state(phase=SandboxPhase.PAUSED, held=True), NOW)
    assert "paused" == status.phase_words(sandbox_state(phase=SandboxPhase.PAUSED), NOW)
    assert "paused on disk" == status.phase_words(sandbox_state(phase=SandboxPhase.PAUSED, tier="microvm"), NOW)
    assert "running" in text_of(interpreters("x"))


@pytest.mark.parametrize(
    ("standby_s", "expires_s", "told"),
    [
        (720, 1620, ("pauses in 12m", "expires in 27m")),
        (719, 1619, ("pauses in 11m", "expires in 26m")),
        (42, 7300, ("pauses in 42s", "expires in 2h")),
        (None, 90, ("expires in 1m",)),
    ],
)
def test_a_deadline_is_counted_in_minutes_until_it_is_near(
    standby_s: float | None, expires_s: float, told: tuple[str, ...]
) -> None:
    lives = sandbox_state(standby_at=None if standby_s is None else NOW + standby_s, expires_at=NOW + expires_s)

    assert told == status.to_come(interpreters("x", sandbox_state=lives), NOW)


def test_a_sandbox_that_is_paused_to_disk_does_not_expire_and_once_it_is_paused_it_does() -> None:
    lives = sandbox_state(tier="microvm", standby_at=NOW + 720, pause_at=NOW + 1620, expires_at=NOW + 86_400)
    soon = msgspec.structs.replace(lives, standby_at=None, pause_at=NOW + 200)
    paused = msgspec.structs.replace(lives, phase=SandboxPhase.PAUSED, standby_at=None, pause_at=None)

    assert ("pauses in 12m", "pauses to disk in 27m") == status.to_come(
        interpreters("x", sandbox="microvm", sandbox_state=lives), NOW
    )
    assert "pauses to disk in 3m" in words(interpreters("x", sandbox="microvm", sandbox_state=soon))
    asleep = interpreters("x", SessionState.PAUSED, sandbox="microvm", sandbox_state=paused)
    assert ("expires in 1d",) == status.to_come(asleep, NOW)


def test_no_deadline_is_counted_in_a_turn_while_paused_or_after_the_end() -> None:
    asleep = sandbox_state(phase=SandboxPhase.PAUSED, held=True)

    assert () == status.to_come(interpreters("x", SessionState.WORKING, in_turn=True), NOW)
    assert ("expires in 27m",) == status.to_come(interpreters("x", SessionState.STANDBY, sandbox_state=asleep), NOW)
    assert () == status.to_come(interpreters("x", SessionState.ENDED), NOW)


@pytest.mark.parametrize("state", [SessionState.WORKING, SessionState.ASKING, SessionState.UNSURE])
def test_no_deadline_is_counted_for_an_agent_that_does_not_rest(state: SessionState) -> None:
    """In a terminal nobody says when a turn begins: what was counted before it holds no more."""
    agent = session("x", SessionState.IDLE, sandbox="jail", sandbox_state=sandbox_state(standby_at=NOW + 30))

    assert "pauses in 30s" in status.to_come(agent, NOW)
    assert () == status.to_come(msgspec.structs.replace(agent, state=state), NOW)


def test_a_row_shows_a_deadline_only_when_it_is_near() -> None:
    far = interpreters("x")
    sleeps = interpreters("x", sandbox_state=sandbox_state(standby_at=NOW + 30))
    ends = interpreters("x", sandbox_state=sandbox_state(standby_at=NOW + 30, expires_at=NOW + 200))

    assert "" == words(far)
    assert "pauses in 30s" in words(sleeps)
    assert "expires in 3m" in words(ends)


def test_a_row_is_rendered_again_only_when_its_countdown_changes() -> None:
    calm, near = (
        interpreters("x", ago=9000),
        interpreters("x", ago=9000, sandbox_state=sandbox_state(standby_at=NOW + 30)),
    )

    assert moments(calm, NOW) == moments(calm, NOW - 20)
    assert moments(near, NOW) != moments(near, NOW - 1)


def test_meters_show_usage_and_limit_and_warn_by_more_than_a_colour() -> None:
    usage = sandbox_state().usage
    assert usage is not None
    full = sandbox_state(usage=msgspec.structs.replace(usage, memory_bytes=490 * MIB))

    assert "memory ━━━───── 212 of 512 MiB" in text_of(interpreters("x"))
    assert "disk ━─────── 71 MiB of 1 GiB" in text_of(interpreters("x"))
    assert ("490", "bad.bold") in status.meters(interpreters("x", sandbox_state=full), LOOK)


def test_a_meter_without_a_limit_shows_only_the_usage() -> None:
    usage = sandbox_state().usage
    assert usage is not None
    free = sandbox_state(usage=msgspec.structs.replace(usage, memory_allowed=0))

    assert "memory 212 MiB   disk" in text_of(interpreters("x", sandbox_state=free))


@pytest.mark.parametrize("width", [38, 60, 80, 116, 120, 160])
@pytest.mark.parametrize("shown", sandboxes().sessions, ids=lambda shown: shown.id)
def test_the_panel_has_at_most_three_lines(shown: Session, width: int) -> None:
    assert len(status.panel(shown, LOOK, NOW, width)) <= 3


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (0, "0 MiB"),
        (4, "4 B"),
        (12 * 1024, "12 KiB"),
        (MIB // 2, "0.5 MiB"),
        (71 * MIB, "71 MiB"),
        (1536 * MIB, "1.5 GiB"),
    ],
)
def test_an_amount_is_short(size: int, told: str) -> None:
    assert told == status.amount(size)


@pytest.mark.parametrize(("width", "word"), [(80, "interp. "), (120, "interpreters ")])
def test_interpreters_are_named_in_full_or_by_a_shorter_word(width: int, word: str) -> None:
    assert word in strip_of(interpreters("x", agent="interpreters"), width, mode=8).text


def test_a_filter_finds_sessions_in_a_sandbox() -> None:
    confined, free = interpreters("x"), session("y")

    assert SessionFilter("sandbox:jail").takes(confined)
    assert not SessionFilter("sandbox:jail").takes(free)
    assert SessionFilter("sandbox:none").takes(free)
    assert SessionFilter("jail").takes(confined)


def test_no_control_character_of_a_sandbox_reaches_the_terminal() -> None:
    nasty = Confinement(ok=False, mismatches=("\x1b]0;x\x07\x1b[2J[red]",))
    shown = working("x", sandbox_state=sandbox_state(confinement=nasty, lost="\x1b[31m"), sandbox="jail")

    assert "\x1b" not in drawn(shown) + text_of(shown)


@pytest.mark.parametrize("width", [40, 60, 80, 99, 100, 120, 200])
@pytest.mark.parametrize("shown", machines().sessions, ids=lambda shown: shown.id)
def test_a_row_of_a_tier_that_keeps_memory_is_exactly_as_wide_as_the_list(width: int, shown: Session) -> None:
    assert width == strip_of(shown, width, mode=8).cell_length


@pytest.mark.parametrize(
    ("tier", "whole", "short", "words"),
    [("microvm", "microvm◈", "vm◈", "own kernel"), ("e2b", "e2b◎", "e2b◎", "at the service")],
)
def test_a_tier_with_its_own_kernel_has_its_own_shape_and_is_proven_once_the_guest_agent_has_reported(
    tier: Tier, whole: str, short: str, words: str
) -> None:
    shown = machine("x", tier=tier)

    assert whole == "".join(text for text, _ in status.badge(shown, LOOK))
    assert short == "".join(text for text, _ in status.badge(shown, LOOK, 5))
    assert words == status.proof_words(shown)
    assert "info" == status.badge(shown, LOOK)[-1][1]
    proven = machine("x", tier=tier, sandbox_state={"confinement": Confinement(ok=True)})
    assert f"{words}, verified" == status.proof_words(proven)
    assert (whole, "good") == (
        "".join(text for text, _ in status.badge(proven, LOOK)),
        status.badge(proven, LOOK)[-1][1],
    )
    assert whole in strip_of(shown, 120, mode=status.mode_cells(shown)).text


@pytest.mark.parametrize(
    ("phase", "held", "told"),
    [
        (SandboxPhase.PAUSING, True, "pausing"),
        (SandboxPhase.PAUSING, False, "writing memory to disk"),
        (SandboxPhase.RESUMING, True, "resuming"),
        (SandboxPhase.RESUMING, False, "reading memory from disk"),
        (SandboxPhase.HEALING, False, "recovering sandbox"),
    ],
)
def test_a_transition_is_shown_with_its_duration(phase: SandboxPhase, held: bool, told: str) -> None:
    lives = {"phase": phase, "held": held, "is_intended": phase is not SandboxPhase.HEALING, "phase_at": NOW - 3}
    shown = machine("x", SessionState.STARTING, ago=9000, sandbox_state=lives)

    assert f"{told}  3s  " == words(shown)
    assert f" {told}, 3s" in text_of(shown)
    assert moments(shown, NOW) != moments(shown, NOW - 1)


def test_a_loss_is_in_the_panel_for_an_hour() -> None:
    shown = next(each for each in machines().sessions if each.name == "crunch")

    assert "! lost 4m ago: it could not be resumed" in text_of(shown, 300)
    housing_then = msgspec.structs.replace(shown.sandbox_state, lost_at=NOW - 4000)  # type: ignore[type-var]
    assert "lost" not in text_of(msgspec.structs.replace(shown, sandbox_state=housing_then), 300)


@pytest.mark.parametrize("shown", machines().sessions, ids=lambda shown: shown.id)
def test_the_panel_of_a_tier_that_keeps_memory_has_at_most_three_lines(shown: Session) -> None:
    for width in (38, 60, 80, 116, 160):
        assert len(status.panel(shown, LOOK, NOW, width)) <= 3


def test_only_a_sandbox_with_memory_can_be_paused_to_disk_and_not_twice() -> None:
    states = {each.name: (status.can_pause(each), status.sleeps_on_disk(each)) for each in machines().sessions}

    assert (True, False) == states["train"] == states["parse"] == states["crunch"]
    assert (False, True) == states["numbers"] == states["remote"]
    assert (False, False) == states["plain"] == states["docs"]
