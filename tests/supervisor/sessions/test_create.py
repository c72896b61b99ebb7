"""What is checked and left behind before an agent runs."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon import errors
from kasmon.backends import project_trust
from kasmon.backends.common.environment import encoded, load_variables
from kasmon.config import Config
from kasmon.config.schema import AccountConfig, Profile
from kasmon.host.journal.secrets import secrets_of
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.model.session_state import SessionState
from kasmon.model.task import TaskGroup, environment, peers
from kasmon.sandbox.agent.credential_files import keeps_memory
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes import availability
from kasmon.supervisor.sessions.create import NewSession, own_variables, prepare
from kasmon.supervisor.sessions.names import claim
from tests.support.supervisor.env import NOW, Env, ended, launch, started

PLACED: Any = {"task": 3, "wave": 2, "peers": 4, "plan": "auth"}


def test_an_agent_gets_its_task_its_wave_and_the_size_of_the_wave_also_in_the_earlier_variables() -> None:
    told = environment(launch("abcdefgh", **PLACED))

    assert told == {
        f"{prefix}_{name}": value
        for prefix in ("KASMON", "KASMOS")
        for name, value in {"SESSION": "abcdefgh", "TASK": "3", "WAVE": "2", "PEERS": "4", "PLAN": "auth"}.items()
    }


def test_a_session_without_a_task_is_told_only_who_it_is_and_peers_are_where_it_stands() -> None:
    assert {"KASMON_SESSION": "abcdefgh", "KASMOS_SESSION": "abcdefgh"} == environment(launch("abcdefgh"))
    assert TaskGroup(task=3, wave=2, size=4, plan="auth") == peers(launch("abcdefgh", **PLACED))


def test_a_name_takes_the_callers_value_a_pair_its_own_and_both_override_the_profile() -> None:
    own = own_variables(
        {"A": "profile", "B": "profile", "C": "profile"}, ["B", "C=x=y", "D="], {"A": "no", "B": "caller"}
    )

    assert {"A": "profile", "B": "caller", "C": "x=y", "D": ""} == own
    assert b"A=profile\0B=caller\0C=x=y\0D=\0" == encoded(own)


def test_a_value_that_is_not_utf8_is_preserved() -> None:
    assert b"A=\xff\0" == encoded({"A": "\udcff"})


@pytest.mark.parametrize("named", ["NOWHERE", "1A=x", "A B=x", "=x", "", "KASMON_SESSION=x", "KASMOS_TASK=1", "A=x\0y"])
def test_an_invalid_variable_is_refused_by_name(named: str) -> None:
    with pytest.raises(errors.UsageError, match=repr(named.partition("=")[0])):
        own_variables({}, [named], {})


CALLER = {"PATH": "/usr/bin:/bin", "HOME": "/", "TOKEN": "s3cret-value"}


def wants(name: str = "docs", **more: object) -> NewSession:
    base = NewSession(name=name, agent="scripted", mode=Mode.SDK, workdir="/")
    return msgspec.structs.replace(base, **more)


def prepared(env: Env, wanted: NewSession, config: Config | None = None) -> Launch:
    return prepare(env.paths, config or Config(), wanted, NOW, CALLER)


def test_a_session_is_in_the_fleet_before_its_agent_runs(env: Env) -> None:
    launch = prepared(env, wants(prompt="say hello", task=1, wave=2, peers=3, plan="auth", seed=7))

    [session] = read_fleet(env.paths, lambda: NOW).sessions
    assert (launch.session, "docs", SessionState.STARTING) == (session.id, session.name, session.state)
    assert (1, 2, 3, "auth", "/") == (session.task, session.wave, session.peers, session.plan, session.workdir)
    assert launch == msgspec.json.decode(env.paths.launch(launch.session).read_bytes(), type=Launch)


def test_an_id_has_eight_characters_with_a_letter_first_and_a_private_folder(env: Env) -> None:
    claimed = [claim(env.paths) for _ in range(50)]

    assert 50 == len(set(claimed))
    for session in claimed:
        assert re.fullmatch("[a-z][a-z2-7]{7}", session)
        assert 0o700 == env.paths.folder(session).stat().st_mode & 0o777


def test_each_variable_of_a_confined_session_is_a_credential_unless_it_is_passed_as_public(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        availability, "must_confine", lambda *_: None
    )  # whether a sandbox can be made here counts for nothing
    wanted = wants(environment=("TOKEN",), public_environment=("PORT=80",), sandbox="microvm", mode=None)

    policies = []
    for each in (wanted, msgspec.structs.replace(wanted, name="open", environment=())):
        launch = prepared(env, each)
        assert ("PORT",) == launch.public_variables
        policies.append(msgspec.json.decode(env.paths.sandbox(launch.session).read_bytes(), type=SandboxPolicy))

    assert [("TOKEN",), ()] == [policy.secret_variables for policy in policies]
    assert [False, True] == [keeps_memory(policy) for policy in policies]


@pytest.mark.parametrize(
    ("variables", "public", "secret"),
    [
        ({"MY_API_KEY": "s3cret-value", "MODE": "fast"}, (), ("MY_API_KEY",)),
        ({"MY_API_KEY": "s3cret-value"}, ("MY_API_KEY=s3cret-value",), ()),
        ({"MODE": "fast"}, (), ()),
    ],
    ids=["secret by its name", "said to be public", "no secret"],
)
def test_a_profiles_variable_that_is_secret_by_its_name_counts_as_a_credential_too(
    env: Env,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    public: tuple[str, ...],
    secret: tuple[str, ...],
) -> None:
    monkeypatch.setattr(availability, "must_confine", lambda *_: None)
    config = Config(agents={"scripted": Profile(program="scripted", env=variables)})

    launch = prepared(env, wants(public_environment=public, sandbox="microvm", mode=None), config)
    policy = msgspec.json.decode(env.paths.sandbox(launch.session).read_bytes(), type=SandboxPolicy)

    assert secret == policy.secret_variables
    assert (not secret) is keeps_memory(policy)


@pytest.mark.parametrize("mode", [Mode.TMUX, Mode.SDK])
def test_a_key_that_a_confined_agent_inherits_counts_as_a_credential_in_either_mode(
    env: Env, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Mode
) -> None:
    monkeypatch.setattr(availability, "must_confine", lambda *_: None)
    monkeypatch.setattr(project_trust, "check", lambda *_: None)
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    config = Config(agents={"claude": Profile(program=str(program))})
    new = wants(agent="claude", sandbox="microvm", mode=mode)
    caller = {"PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "sk-ant-s3cret-value"}

    launch = prepare(env.paths, config, new, NOW, caller)
    policy = msgspec.json.decode(env.paths.sandbox(launch.session).read_bytes(), type=SandboxPolicy)

    assert ("ANTHROPIC_API_KEY",) == policy.secret_variables
    assert not keeps_memory(policy)


def test_a_public_variable_is_no_secret_of_its_session(env: Env) -> None:
    launch = prepared(env, wants(environment=("TOKEN",), public_environment=("MODE=developing",)))

    assert {"TOKEN": "s3cret-value", "MODE": "developing"} == load_variables(env.paths, launch.session)
    assert ("s3cret-value",) == secrets_of(env.paths, launch.session, variables={})


def test_a_variable_is_not_both_secret_and_public(env: Env) -> None:
    with pytest.raises(errors.UsageError, match="'TOKEN' is given by both --env and --env-public"):
        prepared(env, wants(environment=("TOKEN",), public_environment=("TOKEN=x",)))


def test_the_values_of_variables_are_in_one_private_file_only(env: Env) -> None:
    config = Config(agents={"scripted": Profile(program="scripted", env={"MODE": "profile"})})

    launch = prepared(env, wants(environment=("TOKEN", "PORT=80")), config)

    folder = env.paths.folder(launch.session)
    assert b"MODE=profile\0TOKEN=s3cret-value\0PORT=80\0" == env.paths.environment(launch.session).read_bytes()
    assert {"env", "launch.json"} == {path.name for path in folder.iterdir()}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert b"s3cret" not in env.paths.launch(launch.session).read_bytes() + env.paths.fleet_log.read_bytes()


def test_a_name_is_cleaned(env: Env) -> None:
    assert "red docs" == prepared(env, wants("\x1b[31mred\ndocs ")).name


@pytest.mark.parametrize("name", ["docs", " docs", "\x1b[31mdocs"])
def test_a_taken_name_leaves_nothing_behind(env: Env, name: str) -> None:
    first = prepared(env, wants())

    with pytest.raises(errors.NameTakenError):
        prepared(env, wants(name))

    assert [first.session] == [path.name for path in env.paths.sessions.iterdir()]


@pytest.mark.parametrize(
    ("wanted", "error", "named"),
    [
        (wants(workdir="/no/such/folder"), errors.UsageError, "/no/such/folder"),
        (wants(workdir="/dev/null"), errors.UsageError, "/dev/null"),
        (wants(workdir="~nobody-has-this-name/x"), errors.UsageError, "~nobody-has-this-name/x"),
        (wants(workdir="/\udcff"), errors.UsageError, "udcff"),
        (wants(""), errors.UsageError, "name ''"),
        (wants(prompt="a\0b"), errors.UsageError, "NUL"),
        (wants(environment=("NOWHERE",)), errors.UsageError, "NOWHERE"),
        (wants(environment=("KASMON_SESSION=x",)), errors.UsageError, "KASMON_SESSION"),
        (wants(agent="", mode=None, argv=("no-such-program",)), errors.AgentNotFoundError, "no-such-program"),
        (wants(agent="", argv=("sh",)), errors.UsageError, "sh"),
        (wants(parent=SessionId("zzzzzzzz")), errors.SessionNotFoundError, "zzzzzzzz"),
    ],
    ids=lambda value: "" if isinstance(value, NewSession) else getattr(value, "__name__", value),
)
def test_an_invalid_session_is_refused_and_nothing_is_left(
    env: Env, wanted: NewSession, error: type[errors.KasmonError], named: str
) -> None:
    with pytest.raises(error, match=re.escape(named)):
        prepared(env, wanted)

    assert [] == list(env.paths.sessions.iterdir())
    assert () == read_fleet(env.paths).sessions


def test_the_folder_is_the_callers_own_by_default(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(env.folder)
    (env.folder / "work").mkdir()

    assert str(env.folder) == prepared(env, wants("one", workdir="")).workdir
    assert str(env.folder / "work") == prepared(env, wants("two", workdir="work")).workdir


def test_any_program_runs_in_tmux_by_its_path(env: Env) -> None:
    launch = prepared(env, wants(agent="", mode=None, argv=("sh", "-c", "exit 3")))

    assert (Mode.TMUX, "tmux", "sh") == (launch.mode, launch.backend, launch.agent)
    assert ("-c", "exit 3") == launch.argv[1:]
    assert Path(launch.argv[0]).is_absolute()


TERMINAL: Any = {"agent": "", "mode": None, "argv": ("sh",)}


def test_a_window_is_opened_beside_a_terminal_that_runs_and_nowhere_else(env: Env) -> None:
    beside = {
        "runs": env.has("aaaaaaaa", started(mode=Mode.TMUX), mode=Mode.TMUX),
        "ended": env.has("bbbbbbbb", started(mode=Mode.TMUX), ended(), mode=Mode.TMUX),
        "structured": env.has("cccccccc", started()),
    }
    env.hosts("cccccccc")

    assert "aaaaaaaa" == prepared(env, wants(parent=beside["runs"], **TERMINAL)).parent
    with pytest.raises(errors.SessionEndedError):
        prepared(env, wants("two", parent=beside["ended"], **TERMINAL))
    with pytest.raises(errors.UnableError):
        prepared(env, wants("two", parent=beside["structured"], **TERMINAL))
    with pytest.raises(errors.UsageError):
        prepared(env, wants("two", parent=beside["runs"]))


def test_an_unwritable_state_folder_is_an_error_that_names_it(env: Env) -> None:
    env.paths.sessions.rmdir()
    env.paths.sessions.write_text("no folder")

    with pytest.raises(errors.KasmonError) as refused:
        prepared(env, wants())

    assert isinstance(refused.value, errors.UnavailableError)


def test_no_structured_agent_starts_in_an_untrusted_folder(env: Env, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.touch(0o700)
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"own": {"command": "touch"}}}')
    config = Config(agents={"mine": Profile(program=str(program), protocol="claude")})
    wanted = wants(agent="mine", workdir=str(tmp_path))

    with pytest.raises(errors.UntrustedFolderError, match=r"mcpServers \(own\) in \.mcp\.json"):
        prepared(env, wanted, config)

    assert () == read_fleet(env.paths, lambda: NOW).sessions
    assert Mode.TMUX is prepared(env, msgspec.structs.replace(wanted, mode=Mode.TMUX), config).mode


def test_a_session_uses_the_login_of_its_account_and_its_key_is_in_its_own_file_only(env: Env, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    for each in (program, tmp_path / "codex"):
        each.write_text("#!/bin/sh\n")
        each.chmod(0o700)
    (tmp_path / "work").mkdir()
    accounts = {
        "work": AccountConfig(agent="claude", directory=str(tmp_path / "work"), env={"ANTHROPIC_API_KEY": "$WORK_KEY"}),
        "gone": AccountConfig(agent="claude", directory=str(tmp_path / "gone")),
    }
    agents = {"claude": Profile(program=str(program)), "codex": Profile(program="codex")}
    config, key = Config(accounts=accounts, agents=agents), "sk-test-0123456789abcdef0123"
    caller = {"WORK_KEY": key, "PATH": str(tmp_path)}

    new = NewSession(name="a", account="work", mode=Mode.TMUX, workdir=str(tmp_path))
    launch = prepare(env.paths, config, new, NOW, caller)
    assert ("claude", "work") == (launch.agent, launch.account)
    assert {"CLAUDE_CONFIG_DIR": str(tmp_path / "work"), "ANTHROPIC_API_KEY": key} == load_variables(
        env.paths, launch.session
    )
    assert ("CLAUDE_CONFIG_DIR",) == launch.public_variables
    assert key not in env.paths.launch(launch.session).read_text() + env.paths.fleet_log.read_text()
    (listed,) = read_fleet(env.paths).sessions
    assert "work" == listed.account

    for wrong, why in (
        (msgspec.structs.replace(new, name="b", account="gone"), "does not exist"),
        (msgspec.structs.replace(new, name="b", account="none"), "there is no account 'none'"),
        (msgspec.structs.replace(new, name="b", argv=(str(tmp_path / "codex"),)), "is one of 'claude'"),
        (msgspec.structs.replace(new, name="b", agent="claude@elsewhere"), "its log-in is on this machine"),
    ):
        with pytest.raises(errors.KasmonError, match=why):
            prepare(env.paths, config, wrong, NOW, caller)
    with pytest.raises(errors.UsageError, match="'WORK_KEY' of the account 'work' is not set"):
        prepare(env.paths, config, msgspec.structs.replace(new, name="b"), NOW, {"PATH": str(tmp_path)})


def test_a_config_directory_of_the_starter_is_an_account_too(env: Env, tmp_path: Path) -> None:
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o700)
    new = NewSession(name="a", agent="claude", mode=Mode.TMUX, workdir=str(tmp_path))
    caller = {"CLAUDE_CONFIG_DIR": "/srv/claude", "PATH": str(tmp_path)}

    assert "/srv/claude" == prepare(env.paths, Config(), new, NOW, caller).account
