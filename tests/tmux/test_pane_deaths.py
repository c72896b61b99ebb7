"""Each death is told once, with its reason if there is one to be had."""

from kasmon.tmux.formats import PaneFacts, read_pane_facts
from kasmon.tmux.pane_deaths import CHECKS, CHECKS_AT_ONCE, PaneDeath, PaneDeaths


def pane(name: str = "%1", pid: int = 10, *, dead: bool = False, status: str = "", signal: str = "") -> PaneFacts:
    facts = read_pane_facts(f"0|{name}|@1|$1|{pid}|{int(dead)}|{status}|{signal}|0|80|24|0|0||".encode())
    assert facts is not None
    return facts


def test_a_running_pane_is_no_change() -> None:
    deaths = PaneDeaths()

    assert [] == deaths.compare([pane()]).deaths


def test_a_new_pane_is_reported_once() -> None:
    deaths = PaneDeaths()

    assert ["%1"] == deaths.compare([pane()]).appeared
    assert [] == deaths.compare([pane(dead=True, status="7")]).appeared


def test_a_pane_that_replaces_another_in_its_window_missed_nothing() -> None:
    deaths = PaneDeaths()
    deaths.compare([pane(dead=True, status="7")])

    assert [] == deaths.compare([pane("%2")]).appeared

    deaths.compare([])
    assert ["%3"] == deaths.compare([pane("%3")]).appeared


def test_a_death_is_reported_once() -> None:
    deaths = PaneDeaths()
    deaths.compare([pane()])

    assert [PaneDeath("%1", 7, None)] == deaths.compare([pane(dead=True, status="7")]).deaths
    assert [] == deaths.compare([pane(dead=True, status="7")]).deaths


def test_a_pane_that_was_dead_at_the_first_read_is_reported() -> None:
    """The host was not there when it happened."""
    assert [PaneDeath("%1", None, 9)] == PaneDeaths().compare([pane(dead=True, signal="9")]).deaths


def test_a_restarted_pane_can_die_again() -> None:
    deaths = PaneDeaths()
    deaths.compare([pane(dead=True, status="7")])
    deaths.compare([pane(pid=11)])

    assert [PaneDeath("%1", 7, None)] == deaths.compare([pane(pid=11, dead=True, status="7")]).deaths


def test_a_second_death_is_reported_even_if_the_restart_was_missed() -> None:
    deaths = PaneDeaths()
    deaths.compare([pane(dead=True, status="7")])

    assert [PaneDeath("%1", 7, None)] == deaths.compare([pane(pid=11, dead=True, status="7")]).deaths


def test_a_death_without_a_reason_is_read_again_before_it_is_reported() -> None:
    deaths = PaneDeaths()
    looks = [deaths.compare([pane(dead=True)]) for _ in range(CHECKS)]

    assert [False] * (CHECKS - 1) + [True] == [bool(look.deaths) for look in looks]
    assert [True] * (CHECKS - 1) + [False] == [look.unexplained for look in looks]
    assert [True] * (CHECKS_AT_ONCE - 1) == [look.at_once for look in looks if look.at_once]
    assert [PaneDeath("%1", None, None)] == looks[-1].deaths


def test_a_late_reason_is_reported() -> None:
    deaths = PaneDeaths()
    for _ in range(CHECKS):
        deaths.compare([pane(dead=True)])

    assert [PaneDeath("%1", None, 15)] == deaths.compare([pane(dead=True, signal="15")]).deaths
    assert [] == deaths.compare([pane(dead=True, signal="15")]).deaths


def test_a_closed_pane_is_reported_once() -> None:
    deaths = PaneDeaths()
    deaths.compare([pane("%1"), pane("%2")])

    assert ["%1"] == deaths.compare([pane("%2")]).closed
    assert [] == deaths.compare([pane("%2")]).closed
