"""What is checked and left behind before an agent runs."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon.config import Config
from kasmon.config.schema import Profile
from kasmon.errors import (
    AgentNotFoundError,
    KasmonError,
    NameTakenError,
    SessionEndedError,
    SessionNotFoundError,
    UnableError,
    UnavailableError,
    UntrustedFolderError,
    UsageError,
)
from kasmon.model.command import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.state import SessionState
from kasmon.supervisor.claim import claim
from kasmon.supervisor.create import NewSession, prepare
from kasmon.supervisor.look import look_once
from tests.supervisor.house import NOW, House, ended, started

CALLER = {"PATH": "/usr/bin:/bin", "HOME": "/", "TOKEN": "s3cret-value"}


def wants(name: str = "docs", **more: object) -> NewSession:
    base = NewSession(name=name, agent="scripted", mode=Mode.SDK, workdir="/")
    return msgspec.structs.replace(base, **more)


def prepared(house: House, wanted: NewSession, config: Config | None = None) -> Launch:
    return prepare(house.places, config or Config(), wanted, NOW, CALLER)


def test_a_session_is_in_the_fleet_before_its_agent_runs(house: House) -> None:
    launch = prepared(house, wants(prompt="say hello", task=1, wave=2, peers=3, plan="auth", seed=7))

    [session] = look_once(house.places, lambda: NOW).sessions
    assert (launch.session, "docs", SessionState.STARTING) == (session.id, session.name, session.state)
    assert (1, 2, 3, "auth", "/") == (session.task, session.wave, session.peers, session.plan, session.workdir)
    assert launch == msgspec.json.decode(house.places.launch(launch.session).read_bytes(), type=Launch)


def test_an_id_is_eight_characters_a_letter_first_and_its_folder_ours_alone(house: House) -> None:
    claimed = [claim(house.places) for _ in range(50)]

    assert 50 == len(set(claimed))
    for session in claimed:
        assert re.fullmatch("[a-z][a-z2-7]{7}", session)
        assert 0o700 == house.places.folder(session).stat().st_mode & 0o777


def test_the_values_of_variables_stand_in_one_private_file_only(house: House) -> None:
    config = Config(agents={"scripted": Profile(program="scripted", env={"MODE": "profile"})})

    launch = prepared(house, wants(environment=("TOKEN", "PORT=80")), config)

    folder = house.places.folder(launch.session)
    assert b"MODE=profile\0TOKEN=s3cret-value\0PORT=80\0" == house.places.environment(launch.session).read_bytes()
    assert {"env", "launch.json"} == {path.name for path in folder.iterdir()}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert b"s3cret" not in house.places.launch(launch.session).read_bytes() + house.places.fleet_log.read_bytes()


def test_a_name_is_cleaned_on_the_way_in(house: House) -> None:
    assert "red docs" == prepared(house, wants("\x1b[31mred\ndocs ")).name


@pytest.mark.parametrize("name", ["docs", " docs", "\x1b[31mdocs"])
def test_a_taken_name_leaves_nothing_behind(house: House, name: str) -> None:
    first = prepared(house, wants())

    with pytest.raises(NameTakenError):
        prepared(house, wants(name))

    assert [first.session] == [path.name for path in house.places.sessions.iterdir()]


@pytest.mark.parametrize(
    ("wanted", "error", "named"),
    [
        (wants(workdir="/no/such/folder"), UsageError, "/no/such/folder"),
        (wants(workdir="/dev/null"), UsageError, "/dev/null"),
        (wants(workdir="~nobody-has-this-name/x"), UsageError, "~nobody-has-this-name/x"),
        (wants(workdir="/\udcff"), UsageError, "udcff"),
        (wants(""), UsageError, "name ''"),
        (wants(prompt="a\0b"), UsageError, "NUL"),
        (wants(environment=("NOWHERE",)), UsageError, "NOWHERE"),
        (wants(environment=("KASMON_SESSION=x",)), UsageError, "KASMON_SESSION"),
        (wants(agent="", mode=None, argv=("no-such-program",)), AgentNotFoundError, "no-such-program"),
        (wants(agent="", argv=("sh",)), UsageError, "sh"),
        (wants(parent=SessionId("zzzzzzzz")), SessionNotFoundError, "zzzzzzzz"),
    ],
    ids=lambda value: "" if isinstance(value, NewSession) else getattr(value, "__name__", value),
)
def test_what_makes_no_sense_is_refused_and_nothing_is_left(
    house: House, wanted: NewSession, error: type[KasmonError], named: str
) -> None:
    with pytest.raises(error, match=re.escape(named)):
        prepared(house, wanted)

    assert [] == list(house.places.sessions.iterdir())
    assert () == look_once(house.places).sessions


def test_a_folder_is_the_callers_own_if_none_is_given(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house.folder)
    (house.folder / "work").mkdir()

    assert str(house.folder) == prepared(house, wants("one", workdir="")).workdir
    assert str(house.folder / "work") == prepared(house, wants("two", workdir="work")).workdir


def test_any_program_runs_in_tmux_by_its_path(house: House) -> None:
    launch = prepared(house, wants(agent="", mode=None, argv=("sh", "-c", "exit 3")))

    assert (Mode.TMUX, "tmux", "sh") == (launch.mode, launch.backend, launch.agent)
    assert ("-c", "exit 3") == launch.argv[1:]
    assert Path(launch.argv[0]).is_absolute()


TERMINAL: Any = {"agent": "", "mode": None, "argv": ("sh",)}


def test_a_window_is_opened_beside_a_terminal_that_runs_and_nowhere_else(house: House) -> None:
    beside = {
        "runs": house.has("aaaaaaaa", started(mode=Mode.TMUX), mode=Mode.TMUX),
        "ended": house.has("bbbbbbbb", started(mode=Mode.TMUX), ended(), mode=Mode.TMUX),
        "structured": house.has("cccccccc", started()),
    }
    house.hosts("cccccccc")

    assert "aaaaaaaa" == prepared(house, wants(parent=beside["runs"], **TERMINAL)).parent
    with pytest.raises(SessionEndedError):
        prepared(house, wants("two", parent=beside["ended"], **TERMINAL))
    with pytest.raises(UnableError):
        prepared(house, wants("two", parent=beside["structured"], **TERMINAL))
    with pytest.raises(UsageError):
        prepared(house, wants("two", parent=beside["runs"]))


def test_a_state_folder_that_takes_nothing_is_an_error_that_says_so(house: House) -> None:
    house.places.sessions.rmdir()
    house.places.sessions.write_text("no folder")

    with pytest.raises(KasmonError) as refused:
        prepared(house, wants())

    assert isinstance(refused.value, UnavailableError)


def test_no_structured_agent_is_made_for_a_folder_that_nobody_trusts(house: House, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.touch(0o700)
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"own": {"command": "touch"}}}')
    config = Config(agents={"mine": Profile(program=str(program), protocol="claude")})
    wanted = wants(agent="mine", workdir=str(tmp_path))

    with pytest.raises(UntrustedFolderError, match=r"mcpServers \(own\) in \.mcp\.json"):
        prepared(house, wanted, config)

    assert () == look_once(house.places, lambda: NOW).sessions
    assert Mode.TMUX is prepared(house, msgspec.structs.replace(wanted, mode=Mode.TMUX), config).mode
