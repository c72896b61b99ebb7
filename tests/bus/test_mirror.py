"""The copy of another machine's sessions, also where that machine is hostile."""

import itertools
import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon.bench.support.fleet import session_id
from kasmon.bus.base import (
    BusWelcome,
    Heartbeat,
    ListEnd,
    LogPart,
    LogPosition,
    MachineAway,
    SessionEntry,
    SessionRemoval,
    Update,
    tail_of,
)
from kasmon.bus.mirror import MOST_NOTES, MOST_SESSIONS, Mirror
from kasmon.errors import RefusedError
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.host_lock import HostLock
from kasmon.host.terminal.takeover import survey
from kasmon.model.commands import ActingAgent, Mode, StarterLimits
from kasmon.model.events import MessageWritten, SessionCreated, TurnStarted, encode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.store.event_log import EventLog
from kasmon.store.machines import (
    NO_LINK,
    HostPresence,
    Machine,
    MachineReader,
    Presence,
    read_presence,
    write_machine,
    write_presence,
)
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.watch import AT_ONCE, FleetWatch
from kasmon.supervisor.sessions.names import MOST_TAGS
from tests.support.supervisor.env import NOW, Env, ended, launch, started

ME, OTHER = SessionId("abcdefgh"), SessionId("bcdefghi")
RUNS = HostPresence(host=77)


@pytest.fixture
def mirror(env: Env) -> Iterator[Mirror]:
    """The copy of the machine `far`, whose link is this process."""
    write_machine(env.paths, Machine(name="far"), is_new=True)
    env.locks["link"] = lock = _link_lock(env)
    mirror = Mirror(env.paths, "far")
    mirror.apply(BusWelcome("0.1.0", 1, "far", ()))
    yield mirror
    lock.let_go()


def _link_lock(env: Env) -> HostLock:
    lock = HostLock(env.paths.machine_lock("far"))
    assert lock.acquire()
    return lock


def entry(session: str = ME, *, name: str = "", presence: HostPresence = RUNS, **more: Any) -> SessionEntry:
    created = SessionCreated(at=NOW, launch=launch(session, name=name, **more), machine="whatever")
    return SessionEntry(created, name or session, 0.0, presence)


def apply(mirror: Mirror, *updates: Update) -> None:
    for update in updates:
        mirror.apply(update)


def log_of(*events: Any) -> bytes:
    return b"".join(encode(event) + b"\n" for event in events)


def part(content: bytes, offset: int = 0, session: str = ME, log: str = "1") -> LogPart:
    return LogPart(SessionId(session), log, offset, content)


def shown(env: Env, session: str = ME) -> Session:
    found = read_fleet(env.paths).get(SessionId(session))
    assert found is not None
    return found


def listed(env: Env) -> list[str]:
    return sorted(session.id for session in read_fleet(env.paths).sessions)


def test_a_session_of_the_machine_is_listed_here_with_its_machine_and_its_state(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(name="docs"), part(log_of(started(), TurnStarted(at=NOW))), ListEnd())

    session = shown(env)
    assert ("docs", "far", "far", SessionState.WORKING) == (session.name, session.via, session.machine, session.state)
    assert session.host is not None
    assert session.host.alive


def test_its_folder_and_its_process_are_not_those_of_this_machine(env: Env, mirror: Mirror, tmp_path: Path) -> None:
    event = msgspec.structs.replace(started(pid=os.getpid()), workdir=str(tmp_path))
    apply(mirror, entry(), part(log_of(event)), ListEnd())

    session = shown(env)
    assert (f"far:{tmp_path}", None, None) == (session.workdir, session.pid, session.worktree)
    assert not session.is_orphaned


def test_the_copy_of_a_log_has_the_same_bytes_at_the_same_offsets(env: Env, mirror: Mirror) -> None:
    content = log_of(started(), MessageWritten(at=NOW, text="häß\n\t“x” ‍👩‍💻"), TurnStarted(at=NOW))
    mirror.apply(entry())
    for offset in range(0, len(content), 7):
        mirror.apply(part(content[offset : offset + 7], offset))

    assert content == env.paths.log(ME).read_bytes()
    assert {ME: LogPosition("1", len(content), tail_of(content))} == mirror.positions()


def test_another_link_continues_where_the_last_one_ended(env: Env, mirror: Mirror) -> None:
    first, second = log_of(started()), log_of(TurnStarted(at=NOW))
    apply(mirror, entry(), part(first), ListEnd())
    mirror = Mirror(env.paths, "far")

    positions = mirror.positions()
    apply(mirror, BusWelcome("0.1.0", 1, "far", ()), entry(), part(second, len(first)), ListEnd())

    assert {ME: LogPosition("1", len(first), tail_of(first))} == positions
    assert first + second == env.paths.log(ME).read_bytes()


def test_a_log_that_was_replaced_on_the_machine_is_another_file_here(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(), part(log_of(started(), TurnStarted(at=NOW))), ListEnd())
    before = env.paths.log(ME).stat().st_ino

    mirror.apply(part(log_of(started()), log="2"))

    assert before != env.paths.log(ME).stat().st_ino
    assert SessionState.IDLE is shown(env).state


def test_an_update_that_does_not_follow_the_one_before_ends_the_connection(env: Env, mirror: Mirror) -> None:
    mirror.apply(entry())
    mirror.apply(part(log_of(started())))

    with pytest.raises(OSError, match="does not follow"):
        mirror.apply(part(log_of(TurnStarted(at=NOW)), 5000))

    assert log_of(started()) == env.paths.log(ME).read_bytes()


def test_a_session_removed_on_the_machine_is_removed_here_with_its_copy(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(), entry(OTHER), ListEnd(), SessionRemoval(ME))

    assert [OTHER] == listed(env)
    assert not env.paths.folder(ME).exists()


def test_a_session_not_listed_after_a_pause_is_removed(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(), entry(OTHER), ListEnd(), BusWelcome("0.1.0", 1, "far", ()), entry(OTHER), ListEnd())

    assert [OTHER] == listed(env)


def test_a_session_of_an_unreachable_machine_is_unsure_and_has_no_open_request(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(), part(log_of(started(), TurnStarted(at=NOW))), ListEnd())
    mirror.disconnect("no sign of life for 10 s")
    since = shown(env).since
    mirror.disconnect("no sign of life for 10 s")

    session = shown(env)
    assert SessionState.UNSURE is session.state
    assert "far is unreachable: no sign of life for 10 s" == session.unsure_why
    assert since == session.since, "it is unreachable since the first time"


def test_a_machine_that_is_away_is_shown_as_a_cluster_has_it(env: Env, mirror: Mirror) -> None:
    away = MachineAway("it is not connected\x1b to the cluster", NOW - 60)
    apply(mirror, away, entry(), part(log_of(started(), TurnStarted(at=NOW))), ListEnd(), away)

    session = shown(env)
    assert SessionState.UNSURE is session.state
    why = session.unsure_why or ""
    assert why.startswith("far is unreachable: it is not connected")
    assert "\x1b" not in why
    assert NOW - 60 == session.since

    apply(mirror, BusWelcome("0.1.0", 1, "far", ()), entry(), ListEnd())
    assert not shown(env).is_unreachable


def test_a_session_is_unsure_too_if_the_link_was_killed(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(), part(log_of(started())), ListEnd())
    env.locks["link"].let_go()

    assert f"far is unreachable: {NO_LINK}" == shown(env).unsure_why


def test_all_sessions_of_a_machine_change_with_the_next_look_at_the_fleet(env: Env, mirror: Mirror) -> None:
    """Not in turns, as others that nothing is reported of."""
    count = AT_ONCE + 20
    for number in range(count):
        apply(mirror, entry(session := session_id(number)), part(log_of(started()), session=session))
    mirror.apply(ListEnd())
    watch = FleetWatch(env.paths, writes=False)
    before = watch.refresh()
    mirror.disconnect("a cut")
    after = watch.refresh()
    apply(mirror, BusWelcome("0.1.0", 1, "far", ()), *(entry(session_id(number)) for number in range(count)), ListEnd())

    assert count == sum(not each.is_unreachable for each in before.sessions)
    assert count == sum(each.is_unreachable for each in after.sessions)
    assert count == sum(not each.is_unreachable for each in watch.refresh().sessions)


def test_each_report_of_a_link_is_read_once(env: Env, mirror: Mirror) -> None:
    """Also one that follows another within the resolution of the file system's times."""
    reader, folder, now = MachineReader(env.paths), env.paths.machine("far"), time.time_ns()
    seen = list[str]()
    for name in ("first", "second"):
        write_presence(env.paths, "far", Presence(kasmon=name))
        os.utime(folder, ns=(now, now))
        seen += [report.presence.kasmon for report in (reader.read("far"),) if report]
    os.utime(folder, ns=(0, 0))  # long ago

    assert ["first", "second"] == seen
    assert reader.read("far") is reader.read("far")
    assert reader.read("elsewhere") is None


def test_once_the_machine_is_back_a_session_has_the_state_of_its_log(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(), part(log_of(started())), ListEnd())
    mirror.disconnect("gone")
    apply(mirror, BusWelcome("0.1.0", 1, "far", ()), entry(), ListEnd(), Heartbeat())

    assert SessionState.IDLE is shown(env).state


def test_a_session_that_is_started_again_is_never_lost(env: Env, mirror: Mirror) -> None:
    first = log_of(started(), ended())
    apply(mirror, entry(presence=HostPresence()), part(first), ListEnd())

    apply(mirror, entry(), part(log_of(started(2)), len(first)))

    assert SessionState.IDLE is shown(env).state


def test_a_new_session_is_never_lost(env: Env, mirror: Mirror) -> None:
    apply(mirror, ListEnd(), entry(), part(log_of(started())))

    assert SessionState.IDLE is shown(env).state


def test_a_host_has_exited_only_after_its_last_events(env: Env, mirror: Mirror) -> None:
    first = log_of(started())
    apply(mirror, entry(), part(first), ListEnd(), entry(presence=HostPresence()))

    assert SessionState.IDLE is shown(env).state
    apply(mirror, part(log_of(ended()), len(first)), Heartbeat())
    assert SessionState.ENDED is shown(env).state


def test_a_session_without_host_and_agent_is_lost(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(presence=HostPresence()), part(log_of(started())), ListEnd())

    assert SessionState.LOST is shown(env).state


# A hostile machine.


@pytest.mark.parametrize(
    "session", ["../../../x", "/etc/x", "", ".", "a/b", "ABCDEFGH", "abcdefgh\n", "abcdefg\x1b", "x" * 300]
)
def test_an_id_in_another_format_makes_no_file(env: Env, mirror: Mirror, session: str) -> None:
    before = sorted(env.folder.rglob("*"))

    mirror.apply(entry(session))
    mirror.apply(part(log_of(started()), session=session))
    mirror.apply(SessionRemoval(SessionId(session)))
    mirror.apply(ListEnd())

    assert [env.paths.machine("far") / "presence.json"] == sorted({*env.folder.rglob("*")} - {*before})
    assert [] == listed(env)


def test_a_session_of_this_kasmon_is_not_taken_over(env: Env, mirror: Mirror) -> None:
    env.has(ME, started(), name="mine")
    before = env.paths.log(ME).read_bytes()

    apply(mirror, entry(name="theirs"), part(b"{}\n"), SessionRemoval(ME), ListEnd())

    assert before == env.paths.log(ME).read_bytes()
    assert ("mine", "") == (shown(env).name, shown(env).via)


def test_a_session_of_another_machine_is_not_taken_over(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(name="first"), part(log_of(started())), ListEnd())
    write_machine(env.paths, Machine(name="evil"), is_new=True)
    evil = Mirror(env.paths, "evil")

    apply(evil, BusWelcome("0.1.0", 1, "evil", ()), entry(name="x"), part(b"{}\n"), SessionRemoval(ME), ListEnd())

    assert ("first", "far") == (shown(env).name, shown(env).via)
    assert log_of(started()) == env.paths.log(ME).read_bytes()


@pytest.mark.parametrize(
    "hostile",
    [
        r"\u001b]0;x\u0007",
        r"\u009b31m",
        "\x9b31m",
        r"\u202e",
        "\u202e",
        r"\ufeff",
        "\u200b",
        "\x1b[2J",
        "\x7f",
        r"\u0000",
    ],
)
@pytest.mark.parametrize("cut", range(7))
def test_control_characters_in_a_log_are_replaced_wherever_it_is_cut(
    env: Env, mirror: Mirror, hostile: str, cut: int
) -> None:
    line = log_of(MessageWritten(at=NOW, text="XYZ")).replace(b"XYZ", hostile.encode())
    content = log_of(started()) + line
    at = content.index(hostile.encode()) + cut

    mirror.apply(entry())
    mirror.apply(part(content[:at]))
    mirror.apply(part(content[at:], at))

    copied = env.paths.log(ME).read_bytes()
    assert len(content) == len(copied)
    text = json.loads(copied.splitlines()[-1])["text"]
    assert not {*text} & {*"\x00\x07\x1b\x7f\x9b\u202e\u200b\ufeff"}, ascii(text)


def test_names_and_paths_of_a_hostile_machine_are_clean_text(env: Env, mirror: Mirror) -> None:
    mirror.apply(entry(name="\x1b[2Jevil\n\u202e", argv=("a\x9b", "\x00"), model="m\x1b", window="w\x1b]0;y\x07\n"))
    mirror.apply(ListEnd())

    session = shown(env)
    kept = env.paths.launch(ME).read_text("utf-8") + env.paths.fleet_log.read_text("utf-8")
    assert session.name.startswith("evil")
    assert not any(mark in kept for mark in (r"\u001b", "\x1b", "\x9b", r"\u0000", "\u202e", r"\u202e", r"\n"))


def test_a_name_without_a_visible_character_gets_one(env: Env, mirror: Mirror) -> None:
    mirror.apply(entry(name=" \x07"))
    mirror.apply(ListEnd())

    assert "unnamed" == shown(env).name


def test_a_machine_cannot_list_sessions_without_end(env: Env, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kasmon.bus.mirror.MOST_SESSIONS", 3)
    for name in ("aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd", "eeeeeeee"):
        mirror.apply(entry(name))
    mirror.apply(ListEnd())

    assert ["aaaaaaaa", "bbbbbbbb", "cccccccc"] == listed(env)
    assert 1000 <= MOST_SESSIONS


def test_a_machine_cannot_claim_a_plan_a_parent_or_a_pane_of_this_machine(env: Env, mirror: Mirror) -> None:
    env.has(OTHER, started())

    mirror.apply(entry(plan="p", parent=OTHER))
    mirror.apply(ListEnd())

    assert (None, None) == (shown(env).plan, shown(env).parent)


@pytest.mark.parametrize(
    ("session", "machine", "machines", "shown_as"),
    [
        (OTHER, "", ("far",), ""),
        (OTHER, "laptop", ("far",), OTHER),
        (OTHER, "laptop", (), ""),
        ("cdefghij", "laptop", ("far",), ""),
        ("cdefghij", "", (), "cdefghij"),
        ("../../x", "laptop", ("far",), ""),
    ],
)
def test_a_machine_cannot_claim_an_agent_of_this_machine_unless_that_may_start_sessions_there(
    env: Env, mirror: Mirror, session: str, machine: str, machines: tuple[str, ...], shown_as: str
) -> None:
    env.has(OTHER, started())
    env.paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    env.paths.config_file.write_text(f"[fleet]\nmachines = {list(machines)}\n")
    limits = StarterLimits(depth=8, minutes=1.0)

    mirror.apply(
        entry(actor=ActingAgent(session=SessionId(session), depth=10**9, machine=machine), limits=limits, tools=())
    )
    mirror.apply(ListEnd())

    actor = shown(env).actor
    assert actor is not None
    assert (shown_as, 1000, "") == (actor.session, actor.depth, actor.machine)
    assert (shown_as or None) == shown(env).parent


def test_a_future_time_is_not_accepted(env: Env, mirror: Mirror) -> None:
    created = SessionCreated(at=9e12, launch=launch(ME, at=9e12), machine="x")
    mirror.apply(SessionEntry(created, "x", 9e12, RUNS))
    mirror.apply(ListEnd())

    assert shown(env).created_at < 9e11
    assert shown(env).viewed_at < 9e11


@pytest.mark.parametrize("ahead_s", [86400.0, -86400.0])
def test_the_age_of_a_session_is_right_though_the_machines_clock_is_off(
    env: Env, mirror: Mirror, ahead_s: float
) -> None:
    there = NOW + ahead_s
    listed = SessionEntry(SessionCreated(at=there - 50, launch=launch(ME)), ME, there - 20, RUNS)
    mirror.clock_offset_s = ahead_s
    begun = msgspec.structs.replace(started(), at=there - 40)
    apply(mirror, listed, part(log_of(begun, TurnStarted(at=there - 30))), ListEnd())

    session = shown(env)
    assert (NOW - 50, NOW - 30, NOW - 20) == (session.created_at, session.since, session.viewed_at)
    assert ahead_s == read_presence(env.paths, "far").clock_offset_s


def test_no_host_here_controls_a_terminal_of_another_machine_or_writes_its_log(env: Env, mirror: Mirror) -> None:
    apply(mirror, entry(mode=Mode.TMUX), part(log_of(started(mode=Mode.TMUX))), ListEnd())

    assert () == survey(env.paths).left
    with pytest.raises(RefusedError, match="is a copy"):
        SessionLog(env.paths, ME)


def test_a_machine_cannot_fill_the_list_by_updates(env: Env, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kasmon.bus.mirror.NOTES_PER_S", 0.0)
    mirror = Mirror(env.paths, "far")
    changes = (entry(name=f"name-{number}") for number in itertools.count())

    with pytest.raises(OSError, match="too often"):
        apply(mirror, *itertools.islice(changes, 2 * MOST_NOTES))

    assert MOST_NOTES == sum(1 for _ in EventLog(env.paths.fleet_log).read())


def test_a_machine_cannot_fill_the_disk(env: Env, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kasmon.bus.mirror.MOST_BYTES", 100)
    apply(mirror, entry(), part(b"{}\n" * 30))

    with pytest.raises(OSError, match="GiB"):
        mirror.apply(part(b"{}\n" * 4, 90))

    assert 90 == env.paths.log(ME).stat().st_size


def test_the_tags_of_a_machine_are_those_of_the_session_here_if_they_are_valid(env: Env, mirror: Mirror) -> None:
    tagged = partial(msgspec.structs.replace, entry())

    apply(mirror, tagged(tags=("api", "two words", "\x1b[31m", "x" * 100)), ListEnd())
    assert ("api",) == shown(env).tags
    apply(mirror, tagged(tags=("docs", *map(str, range(10, 40)))))
    assert ("10", "11", "12", "13") == shown(env).tags[:4]
    assert (MOST_TAGS, "docs") == (len(shown(env).tags), shown(env).tags[-1])
    apply(Mirror(env.paths, "far"), tagged(tags=()))
    assert () == shown(env).tags
