"""The config is read strictly, explained from its own schema, and edited without losing anything a person wrote."""

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest

from kasmon.agents.catalog import find
from kasmon.config import (
    Config,
    Lifetime,
    Limits,
    Profile,
    Remote,
    SandboxConfig,
    Tmux,
    Ui,
    load,
    load_or_default,
    offers,
    parse,
    resolve,
)
from kasmon.config.edit import put
from kasmon.config.explain import explain, settings
from kasmon.config.parser import HIDDEN, without_secrets
from kasmon.errors import (
    AgentNotFoundError,
    ConfigError,
    KasmonError,
    NotFoundError,
    RefusedError,
    UnableError,
    UsageError,
)
from kasmon.model.commands import Mode
from kasmon.paths import Paths
from tests.support.syntax_trees import modules, nodes

SEED = """
[agents.coder]
enabled = true
program = "claude"
flags = ["--permission-mode bypassPermissions"]
execution_mode = "sdk"

[agents.reviewer]
enabled = true
program = "claude"
execution_mode = "tmux"
"""


@pytest.fixture
def paths() -> Iterator[Paths]:
    home = Path(mkdtemp(prefix="kasmon-config-"))
    yield Paths(state=home / "state", given_runtime=home / "run", config=home / "config")
    shutil.rmtree(home)


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment in which claude and amp can be started, and nothing else."""
    for name in ("claude", "amp"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return {"PATH": str(tmp_path), "SHELL": str(tmp_path / "amp")}


def write(paths: Paths, text: str) -> Path:
    paths.config.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(text)
    return paths.config_file


def test_without_a_file_everything_has_its_default_and_no_file_appears(paths: Paths) -> None:
    assert Config() == load(paths)
    assert not paths.config.exists()


def test_every_setting_has_a_sentence(paths: Paths) -> None:
    keys = [
        *settings(Config()),
        *(f"agents.mine.{name}" for name in Profile.__struct_fields__),
        *(f"agents.claude.confined.{name}" for name in SandboxConfig.__struct_fields__),
        "keys.next",
        "ui",
        "agents",
    ]

    assert [] == [key for key in keys if not explain(paths, key).sentence.endswith(".")]


def test_every_setting_has_a_reader() -> None:
    """Somewhere beside the schema, its own explanation and its own file somebody asks for it."""
    own = {"schema.py", "explain.py", "edit.py", "file.py"}
    trees = [tree for path, tree in modules().items() if path not in {f"kasmon/config/{name}" for name in own}]
    read = {node.attr for tree in trees for node in nodes(tree) if isinstance(node, ast.Attribute)}
    fields = {
        field
        for table in (Config, Profile, Remote, Ui, Limits, Tmux, SandboxConfig, Lifetime)
        for field in table.__struct_fields__
    }

    assert set() == fields - read


def test_a_command_that_must_work_uses_the_defaults_if_the_config_is_invalid(paths: Paths) -> None:
    told: list[str] = []
    assert Config() == load_or_default(paths, told.append)
    write(paths, "[limits]\ncall_s = 3\n")
    assert 3 == load_or_default(paths, told.append).limits.call_s
    assert [] == told

    write(paths, "[limits]\ncall_s = 0\n")
    assert Config() == load_or_default(paths, told.append)
    assert [True] == ["limits.call_s" in warning for warning in told]


BAD = {
    "unknown setting": ('\n[ui]\ncolour = "red"', 3, "ui.colour", "theme"),
    "unknown table": ("\n[uii]\nbell = true", 2, "uii", "ui"),
    "dotted": ("ui.bel = true", 1, "ui.bel", "bell"),
    "inline": ("# mine\nui = { bel = true }", 2, "ui.bel", "bell"),
    "flag of a profile": ("[agents.claude]\n\nprograms = 'x'", 3, "agents.claude.programs", "program"),
    "quoted": ("['agents'.\"my.claude\"]\nprograms = 'x'", 2, "agents.my.claude.programs", "program"),
    "text for a switch": ('[ui]\nbell = "yes"', 2, "ui.bell", "true"),
    "switch for a text": ("default_agent = true", 1, "default_agent", ""),
    "list of numbers": ("[agents.claude]\nflags = [1]", 2, "agents.claude.flags", ""),
    "number for a variable": ("[agents.claude.env]\nOK = 'a'\nDEBUG = 1", 3, "agents.claude.env.DEBUG", ""),
    "number for a key": ("[keys]\nnext = 'w'\nquit = 3", 3, "keys.quit", ""),
    "value for a table": ("ui = 3", 1, "ui", ""),
    "unknown mode": ('[agents.claude]\nexecution_mode = "SDK"', 2, "agents.claude.execution_mode", '"sdk"'),
    "unknown default": ("default_agent = 'cloud'", 1, "default_agent", "claude"),
    "unknown sandbox": ('[agents.claude]\nsandbox = "docker"', 2, "agents.claude.sandbox", '"jail"'),
    "unknown in a list of tables": (
        '[[sandbox.services]]\nname = "web"\nport = 80\nstart = "x"\nuser = "me"',
        1,
        "sandbox.services",
        "start",
    ),
    "a port that is none": ('[sandbox]\nservices = [{name = "web", port = 0, start = "x"}]', 2, "sandbox.services", ""),
    "too small": ("[limits]\ncall_s = 0", 2, "limits.call_s", ""),
    "too large": ("[tmux]\nhistory_limit = 99999999", 2, "tmux.history_limit", ""),
    "no program": ("[agents.mine]\nflags = []", 1, "agents.mine", "program"),
    "name with a machine": ('[agents."a@b"]\nprogram = "x"', 1, "agents.a@b", ""),
    "broken": ("[ui]\nbell = \n", 2, "", ""),
    "broken at its end": ("[ui]\ntheme = 'moon", 2, "", ""),
    "twice": ("[ui]\nbell = true\nbell = false", 3, "", ""),
}


def test_each_profile_states_how_its_sandbox_is_made(programs: dict[str, str]) -> None:
    config = parse('[agents.claude.confined]\nnetwork = ["github"]\nsize = "build"\n[sandbox]\nsize = "max"')

    confined = resolve(config, "claude", environment=programs).confined

    assert (("github",), "build") == (confined.network, confined.size)
    assert "max" == config.sandbox.size
    assert () == config.agents["shell"].confined.network


def test_an_agent_is_confined_by_its_profile_or_by_the_option(programs: dict[str, str]) -> None:
    config = parse('[agents.claude]\nsandbox = "jail"')

    def confined(agent: str, sandbox: str | None = None, argv: tuple[str, ...] = ()) -> str | None:
        return resolve(config, agent, None, argv, sandbox=sandbox, environment=programs).sandbox

    assert ("jail", None, None) == (confined("claude"), confined("claude", ""), confined("shell"))
    assert ("jail", "jail") == (confined("shell", "jail"), confined("", "jail", ("claude",)))
    with pytest.raises(UsageError, match="'docker'"):
        confined("shell", "docker")


def test_a_program_for_a_service_has_its_name_there_and_need_not_be_here(programs: dict[str, str]) -> None:
    config = parse('[agents.mine]\nprogram = "/opt/there"\nsandbox = "e2b"')

    def argv(agent: str, sandbox: str | None, *given: str) -> tuple[str, ...]:
        return resolve(config, agent, None, given, sandbox=sandbox, environment=programs).argv

    assert (("/opt/there",), ("codex",)) == (argv("mine", None), argv("codex", "e2b")[:1])
    assert (("/bin/bash",), ("nosuch", "-x")) == (argv("shell", "e2b"), argv("", "e2b", "nosuch", "-x"))


def test_the_default_sandbox_files_of_a_known_agent_can_be_changed_one_by_one() -> None:
    config = parse("[agents.claude.confined]\nfiles = []")

    assert () == config.agents["claude"].confined.files
    assert "api.anthropic.com:443" in config.agents["claude"].confined.network
    assert {"claude", "codex", "opencode", "gemini"} <= {
        name for name, profile in config.agents.items() if profile.confined.network
    }


def test_any_profile_of_a_known_agent_gets_its_defaults_unless_it_states_otherwise(programs: dict[str, str]) -> None:
    own = '[agents.coder]\nprogram = "claude"\n'
    plain, stated = parse(own), parse(own + '[agents.coder.confined]\nnetwork = ["github"]')

    def network(config: Config, agent: str, argv: tuple[str, ...] = ()) -> tuple[str, ...]:
        return resolve(config, agent, None, argv, environment=programs).confined.network

    known = Config().agents["claude"].confined.network
    assert (known, known) == (network(plain, "coder"), network(plain, "", ("claude",)))
    assert ("github",) == network(stated, "coder")
    assert () == network(plain, "shell")


def test_a_sandboxs_files_services_and_credentials_are_lists_of_tables() -> None:
    config = parse(
        """
[[sandbox.volatile]]
path = "/run/token"
source = "GH_TOKEN"
[[sandbox.services]]
name = "web"
port = 8000
start = "python3 -m http.server"
[[sandbox.credentials]]
name = "GH_TOKEN"
command = ["pass", "github"]
aliases = ["GITHUB_TOKEN"]
"""
    )

    assert "GH_TOKEN" == config.sandbox.volatile[0].source
    assert 8000 == config.sandbox.services[0].port
    assert ("pass", "github") == config.sandbox.credentials[0].command


@pytest.mark.parametrize(
    "url", ["http://box", "https://box/path", "https://box:x", "https://box\\n", "https://Box", "//box"]
)
def test_the_address_of_links_is_https_and_a_host_name(url: str) -> None:
    with pytest.raises(ConfigError, match="must be `https://` and a host name"):
        parse(f'[web]\nlink_url = "{url}"')
    assert "https://box:8443" == parse('[web]\nlink_url = "https://box:8443"').web.link_url


@pytest.mark.parametrize(("text", "line", "key", "allowed"), BAD.values(), ids=BAD)
def test_an_error_names_file_line_key_and_allowed_values(
    paths: Paths, text: str, line: int, key: str, allowed: str
) -> None:
    file = write(paths, text)

    with pytest.raises(ConfigError) as told:
        load(paths)

    assert (str(file), line, key) == (told.value.file, told.value.line, told.value.key)
    assert f"{file}:{line}" in str(told.value)
    assert allowed in ", ".join(told.value.allowed)
    assert text == file.read_text()


@pytest.mark.parametrize("content", [b"\xff\xfe", None], ids=["not UTF-8", "a folder"])
def test_an_unreadable_config_is_an_error_and_stays_unchanged(paths: Paths, content: bytes | None) -> None:
    if content is None:
        paths.config_file.mkdir(parents=True)
    else:
        write(paths, "").write_bytes(content)

    with pytest.raises(ConfigError, match=str(paths.config_file)) as told:
        load(paths)
    assert told.value.hint in ("Save it as UTF-8.", "Make it readable, or remove it to use the defaults.")
    with pytest.raises(ConfigError, match=str(paths.config_file)):
        put(paths, "ui.bell", "false")
    assert content is None or content == paths.config_file.read_bytes()


@pytest.mark.parametrize("text", ["[ui", "x = " + "9" * 5000], ids=["broken", "a number of 5,000 digits"])
def test_invalid_toml_is_reported_with_what_to_do(text: str) -> None:
    with pytest.raises(ConfigError, match="it is not valid TOML") as told:
        parse(text)

    assert "Fix it there, or move the file away." == told.value.hint


def test_a_table_of_a_shipped_profile_changes_only_what_it_mentions() -> None:
    config = parse('[agents.claude]\nmodel = "opus"')

    assert msgspec.structs.replace(Config().agents["claude"], model="opus") == config.agents["claude"]
    assert Config().agents["codex"] == config.agents["codex"]


def test_the_config_of_the_earlier_program_works_and_its_bypass_flag_is_reported(programs: dict[str, str]) -> None:
    config = parse(SEED)

    coder = resolve(config, "coder", "tmux", environment=programs)

    assert (f"{programs['PATH']}/claude", "--permission-mode", "bypassPermissions") == coder.argv
    assert coder.bypassing
    assert not resolve(config, "reviewer", environment=programs).bypassing


def test_an_agent_with_a_protocol_only_skips_permissions_in_a_terminal(programs: dict[str, str]) -> None:
    (Path(programs["PATH"]) / "cline").symlink_to("amp")

    for mode, bypassing in ((Mode.TMUX, True), (Mode.SDK, False)):
        assert bypassing == resolve(Config(), "cline", mode, environment=programs).bypassing


@pytest.mark.parametrize(
    ("argv", "bypassing"),
    [
        (["claude"], False),
        (["claude", "--dangerously-skip-permissions"], True),
        (["claude", "--permission-mode=bypassPermissions"], True),
        (["claude", "--permission-mode", "plan", "bypassPermissions"], False),
        (["codex", "--yolo"], True),
        (["codex", "-a", "never"], True),
        (["gemini", "-y"], True),
        (["git", "-y"], False),
        (["amp", "--dangerously-allow-all"], True),
        (["aider", "--yes-always"], True),
        (["aider", "--yes"], True),
        (["aider", "--no-auto-commits"], False),
        (["kimi", "--yolo"], True),
        (["kimi", "-y"], True),
        (["kimi", "--auto"], True),
        (["opencode", "--auto"], False),
        (["droid", "exec", "--skip-permissions-unsafe"], True),
        (["droid", "--auto", "high"], True),
        (["droid", "--auto=high"], True),
        (["droid", "--auto", "medium", "high"], False),
        (["grok", "--always-approve"], True),
        (["copilot", "--allow-all"], True),
        (["copilot", "--allow-all-tools"], True),
        (["copilot", "--allow-all-urls"], False),
        (["qwen", "--yolo"], True),
        (["qwen", "-y"], True),
        (["cline"], True),
        (["cline", "--auto-approve", "false"], False),
        (["cline", "--auto-approve=false"], False),
        (["cline", "--auto-approve", "--plan", "false"], True),
        (["cline", "--acp"], False),
        (["cline", "--acp", "--auto-approve", "true"], True),
        (["pi", "--no-session"], True),
        (["pi-acp"], True),
        (["--yolo"], False),
    ],
)
def test_arguments_that_skip_permissions_are_detected(argv: list[str], bypassing: bool, tmp_path: Path) -> None:
    (tmp_path / argv[0]).write_text("#!/bin/sh\n")
    (tmp_path / argv[0]).chmod(0o755)

    assert bypassing == resolve(Config(), argv=argv, environment={"PATH": str(tmp_path)}).bypassing


@pytest.mark.parametrize(
    ("argv", "agent", "is_command"),
    [
        (["sleep", "100"], "", True),
        (["python3", "train.py"], "", True),
        (["sh", "-c", "make"], "", True),
        (["bash", "build.sh"], "", True),
        (["bash"], "", False),
        (["zsh", "-l"], "", False),
        (["claude"], "", False),
        (["sleep", "100"], "claude", False),
    ],
)
def test_a_command_is_a_program_that_is_no_agent_and_no_interactive_shell(
    argv: list[str], agent: str, is_command: bool, tmp_path: Path
) -> None:
    (tmp_path / argv[0]).write_text("#!/bin/sh\n")
    (tmp_path / argv[0]).chmod(0o755)

    assert is_command == resolve(Config(), agent, argv=argv, environment={"PATH": str(tmp_path)}).is_command


def test_the_mode_is_asked_for_or_the_profiles_or_tmux_and_the_scripted_agent_has_both() -> None:
    config = parse('[agents.structured]\nprogram = "scripted"\nexecution_mode = "sdk"')
    assert Mode.TMUX is resolve(config, "scripted").mode
    assert Mode.SDK is resolve(config, "structured").mode
    assert Mode.TMUX is resolve(config, "structured", Mode.TMUX).mode
    assert Mode.SDK is resolve(config, "scripted", "sdk").mode

    terminal, structured = resolve(Config(), "scripted"), resolve(Config(), "scripted", "sdk")
    assert ("tmux", (sys.executable, "-P", "-m", "kasmon.scripted")) == (terminal.backend, terminal.argv)
    assert ("scripted", ()) == (structured.backend, structured.argv)


def test_a_program_without_a_protocol_falls_back_and_gives_the_reason(programs: dict[str, str]) -> None:
    for agent in ("amp", "shell"):
        resolved = resolve(Config(), agent, "sdk", environment=programs)

        assert (Mode.TMUX, f"{agent} has no structured protocol") == (resolved.mode, resolved.fallback)
    assert resolve(Config(), "amp", environment=programs).fallback is None


def test_any_program_runs_in_tmux_by_its_command_line(programs: dict[str, str]) -> None:
    resolved = resolve(parse(SEED), "coder", argv=["amp", "-x", "a b"], environment=programs)

    assert ("coder", Mode.TMUX, (f"{programs['PATH']}/amp", "-x", "a b")) == (
        resolved.agent,
        resolved.mode,
        resolved.argv,
    )
    assert "tmux" in (resolved.fallback or "")
    assert "amp" == resolve(Config(), argv=["amp"], environment=programs).agent


def test_the_model_and_the_variables_of_a_profile_reach_its_agent(programs: dict[str, str]) -> None:
    config = parse('[agents.claude]\nmodel = "opus"\nflags = ["--add-dir \'a b\'"]\nenv = { A = "1" }')

    resolved = resolve(config, "claude", environment=programs)

    assert (f"{programs['PATH']}/claude", "--model", "opus", "--add-dir", "a b") == resolved.argv
    assert ("opus", {"A": "1"}) == (resolved.model, resolved.environment)


STRUCTURED = {
    "claude": ("", "claude", "claude", ("claude",)),
    "the seed's coder": (SEED, "coder", "claude", ("claude", "--permission-mode", "bypassPermissions")),
    "codex": ("", "codex", "codex", ("codex",)),
    "opencode": ("", "opencode", "acp", ("opencode", "acp")),
    "gemini": ('[agents.gemini]\nflags = ["--sandbox"]', "gemini", "acp", ("gemini", "--acp", "--sandbox")),
    "any by config": ('[agents.mine]\nprogram = "amp"\nacp = ["serve -a"]', "mine", "acp", ("amp", "serve", "-a")),
    "said to be one": ('[agents.mine]\nprogram = "amp"\nprotocol = "codex"', "mine", "codex", ("amp",)),
    "without a protocol": ("", "amp", "tmux", ("amp",)),
    "with a model": ('[agents.claude]\nmodel = "opus"', "claude", "claude", ("claude",)),
}


@pytest.mark.parametrize(("text", "agent", "backend", "argv"), STRUCTURED.values(), ids=STRUCTURED)
def test_a_structured_session_speaks_the_protocol_of_its_program(
    programs: dict[str, str], text: str, agent: str, backend: str, argv: tuple[str, ...]
) -> None:
    for name in ("codex", "opencode", "gemini"):
        (Path(programs["PATH"]) / name).symlink_to("amp")

    resolved = resolve(parse(text), agent, Mode.SDK, environment=programs)

    assert (backend, argv) == (resolved.backend, (Path(resolved.argv[0]).name, *resolved.argv[1:]))
    assert (Mode.TMUX if backend == "tmux" else Mode.SDK) is resolved.mode
    assert ("amp has no structured protocol" if backend == "tmux" else None) == resolved.fallback


ELSEWHERE = {
    "a name": ("", "claude@big", (), ("claude",)),
    "a path here": ('[agents.mine]\nprogram = "/opt/x/amp"\nflags = ["-a b"]', "mine@me@big", (), ("amp", "-a", "b")),
    "a model": (
        '[agents.codex]\nmodel = "m"',
        "codex@10.0.0.1",
        (),
        ("codex", "--model", "m", *find("codex").start.terminal),
    ),
    "a login shell": ("", "shell@::1", (), ()),
    "any program": ("", "shell@big", ("htop", "-d", "5"), ("htop", "-d", "5")),
    "the usual profile": ('default_agent = "amp"', "@big", (), ("amp",)),
}


@pytest.mark.parametrize(("text", "agent", "argv", "command"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_on_another_machine_a_program_is_used_by_name_and_not_searched_here(
    text: str, agent: str, argv: tuple[str, ...], command: tuple[str, ...]
) -> None:
    resolved = resolve(parse(text), agent, argv=argv, environment={"PATH": "/no/such"})

    assert (Mode.TMUX, "tmux", command) == (resolved.mode, resolved.backend, resolved.argv)
    assert agent.partition("@")[2] == resolved.machine
    assert agent == resolved.agent or agent.startswith("@")


REFUSED = {
    "no such mode": ("", "claude", "SDK", [], UsageError, "'SDK'"),
    "interpreter": ("", "claude", Mode.INTERPRETER, [], UsageError, "tmux or sdk"),
    "structured command line": ("", "", "sdk", ["amp"], UsageError, "after --"),
    "no such profile": ("", "cloud", None, [], NotFoundError, "claude, cline, codex"),
    "disabled": ("[agents.claude]\nenabled = false", "claude", None, [], RefusedError, "'claude' is disabled"),
    "disabled by default": ("[agents.claude]\nenabled = false", "", None, [], RefusedError, "'claude' is disabled"),
    "another machine, structured": ("", "claude@big", "sdk", [], UnableError, "runs in a terminal"),
    "the scripted agent elsewhere": ("", "scripted@big", None, [], UnableError, "runs on this machine only"),
    "no such profile elsewhere": ("", "cloud@big", None, [], NotFoundError, "claude, cline, codex"),
    "no machine": ("", "claude@", None, [], UsageError, "'' is not a valid host name in 'claude@'"),
    "an option for a machine": ("", "claude@-oProxyCommand=x", None, [], UsageError, "is not a valid host name"),
    "an option for a user": ("", "claude@-lx@big", None, [], UsageError, "is not a valid host name"),
    "words for a shell": ("", "claude@big;reboot", None, [], UsageError, "is not a valid host name"),
    "a machine and more": ("", "claude@big x", None, [], UsageError, "is not a valid host name"),
    "a line's end": ("", "claude@big\n", None, [], UsageError, "is not a valid host name"),
    "flags for a login shell": (
        '[agents.shell]\nflags = ["-x"]',
        "shell@big",
        None,
        [],
        ConfigError,
        "agents.shell.flags",
    ),
    "sandboxed elsewhere": ('[agents.claude]\nsandbox = "jail"', "claude@big", None, [], UnableError, "this machine"),
    "part of its host": ('[agents.scripted]\nsandbox = "jail"', "scripted", "sdk", [], UnableError, "of its host"),
    "missing": ("", "codex", None, [], AgentNotFoundError, r"\[agents.codex\] program.*amp, claude, shell, scripted"),
    "missing command": ("", "", None, ["nosuch"], AgentNotFoundError, "'nosuch' is not on PATH"),
    "missing path": ('[agents.claude]\nprogram = "/no/such"', "claude", None, [], AgentNotFoundError, "/no/such"),
    "flags that do not end": ('[agents.amp]\nflags = ["\'a"]', "amp", None, [], ConfigError, "agents.amp.flags"),
    "acp that does not end": (
        '[agents.mine]\nprogram = "amp"\nacp = ["\'a"]',
        "mine",
        "sdk",
        [],
        ConfigError,
        "agents.mine.acp",
    ),
    "no such protocol": ('[agents.mine]\nprogram = "amp"\nprotocol = "mcp"', "mine", None, [], ConfigError, "acp"),
    "model that nobody takes": ('[agents.amp]\nmodel = "x"', "amp", None, [], ConfigError, "agents.amp.model"),
}


@pytest.mark.parametrize(("text", "agent", "mode", "argv", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_an_unavailable_mode_is_refused_with_the_reason(
    programs: dict[str, str],
    text: str,
    agent: str,
    mode: str | None,
    argv: list[str],
    error: type[KasmonError],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        resolve(parse(text), agent, mode, argv, environment=programs)


def test_only_enabled_profiles_are_offered_and_usable_ones_come_first(programs: dict[str, str]) -> None:
    offered = offers(parse("[agents.amp]\nenabled = false\n[agents.scripted]\nexecution_mode = 'sdk'"), programs)

    missing = {offer.name: offer for offer in offered[3:]}
    assert ["claude", "shell", "scripted"] == [offer.name for offer in offered[:3]]
    assert {"codex", "gemini", "opencode", "qwen"} < missing.keys()
    assert "amp" not in missing
    assert [(Mode.TMUX, Mode.SDK), (Mode.TMUX,), (Mode.SDK, Mode.TMUX)] == [offer.modes for offer in offered[:3]]
    assert {()} == {offer.modes for offer in missing.values()}
    assert "cannot start 'codex': 'codex' is not on PATH." == missing["codex"].problem


def test_the_first_setting_makes_the_file(paths: Paths) -> None:
    assert not put(paths, "ui.bell", "false").ui.bell

    assert "[ui]\nbell = false\n" == paths.config_file.read_text()
    assert 0o600 == paths.config_file.stat().st_mode & 0o777
    assert not load(paths).ui.bell


def test_an_edit_keeps_comments_order_mode_and_the_link(paths: Paths, tmp_path: Path) -> None:
    dotfile = tmp_path / "dotfiles.toml"
    dotfile.write_text("# mine\n[ui]  # looks\nbell = true # loud\n\n[agents.claude]\nmodel = 'a'\n")
    dotfile.chmod(0o644)
    paths.config.mkdir(parents=True)
    paths.config_file.symlink_to(dotfile)

    put(paths, "ui.bell", "false")
    put(paths, "agents.claude.flags", "--verbose")
    put(paths, "agents.mine.program", "vim")

    assert paths.config_file.is_symlink()
    assert 0o644 == dotfile.stat().st_mode & 0o777
    assert dotfile.read_text().startswith(
        "# mine\n[ui]  # looks\nbell = false # loud\n\n[agents.claude]\nmodel = 'a'\n"
    )
    assert ("--verbose",) == load(paths).agents["claude"].flags
    assert "vim" == load(paths).agents["mine"].program


def test_a_config_that_cannot_be_written_is_named_with_the_setting(paths: Paths) -> None:
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.symlink_to(paths.config_file.parent / "gone" / "config.toml")

    with pytest.raises(KasmonError, match=r"'ui\.bell' was not changed: cannot write '.*config\.toml': No such file"):
        put(paths, "ui.bell", "false")


@pytest.mark.parametrize(
    ("key", "said", "value"),
    [
        ("default_agent", "shell", "shell"),
        ("ui.theme", "[x]", "[x]"),
        ("tmux.history_limit", "500", 500),
        ("limits.call_s", "2.5", 2.5),
        ("ui.ascii", "yes", "yes"),
        ("agents.claude.flags", '["-a b", "-c"]', ["-a b", "-c"]),
        ("agents.claude.flags", "--verbose", ["--verbose"]),
        ("agents.claude.execution_mode", "sdk", "sdk"),
        ("agents.claude.env.A", "1", "1"),
        ("keys.next", "tab", "tab"),
        ("keys.next", '["tab", "w"]', ["tab", "w"]),
    ],
)
def test_a_value_is_written_as_the_setting_needs_it(paths: Paths, key: str, said: str, value: object) -> None:
    put(paths, key, said)

    assert value == msgspec.json.decode(msgspec.json.encode(explain(paths, key).value))
    assert f"{paths.config_file}:" in explain(paths, key).origin


@pytest.mark.parametrize(
    ("key", "said", "error"),
    [
        ("ui.bell", "loud", UsageError),
        ("limits.call_s", "-1", UsageError),
        ("plans.limit", "9" * 5000, UsageError),
        ("plans.limit", "[" * 5000, UsageError),
        ("agents.mine.model", "x", UsageError),
        ("ui.colour", "red", NotFoundError),
        ("ui.bell.x", "red", NotFoundError),
        ("ui", "red", UsageError),
        ("agents", "red", UsageError),
        ("agents.claude", "red", UsageError),
        ("agents.claude.env", "red", UsageError),
    ],
)
def test_a_refused_value_leaves_the_file_as_it_was(paths: Paths, key: str, said: str, error: type[KasmonError]) -> None:
    file = write(paths, "# mine\n[ui]\nbell = true\n")

    with pytest.raises(error):
        put(paths, key, said)

    assert "# mine\n[ui]\nbell = true\n" == file.read_text()
    assert [file] == list(paths.config.iterdir())


def test_a_caller_may_reject_the_new_config_too(paths: Paths) -> None:
    """What the schema cannot know, such as the dashboard's actions."""

    def check(config: Config) -> None:
        raise ConfigError("config", "no such action")

    with pytest.raises(UsageError, match="no such action"):
        put(paths, "keys.fly", "f", check)
    assert not paths.config.exists()


UNREADABLE = {
    "broken": b"[ui]\nbell = \n",
    "unknown setting": b"[ui]\nunknown = 1\n",
    "wrong type": b"[ui]\nbell = 7\n",
    "no text": b"[ui]\n# caf\xe9\nbell = true\n",
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_file_is_never_written(paths: Paths, content: bytes) -> None:
    file = write(paths, "")
    file.write_bytes(content)
    before = file.stat()

    with pytest.raises(ConfigError):
        put(paths, "ui.bell", "false")

    assert content == file.read_bytes()
    assert (before.st_ino, before.st_mtime_ns) == (file.stat().st_ino, file.stat().st_mtime_ns)
    assert [file] == list(paths.config.iterdir())


def test_a_setting_is_explained_with_its_origin(paths: Paths) -> None:
    file = write(paths, "[ui]\n\nbell = false\n")

    told = explain(paths, "ui.bell")

    assert (False, True, f"{file}:3", ("true", "false")) == (told.value, told.default, told.origin, told.allowed)
    assert "default" == explain(paths, "ui.toasts").origin
    with pytest.raises(NotFoundError, match=r"ui\.bell"):
        explain(paths, "ui.bel")


def test_a_home_of_an_unknown_user_is_a_missing_program(programs: dict[str, str]) -> None:
    config = parse('[agents.mine]\nprogram = "~nobody-has-this-name/bin/mine"')

    with pytest.raises(AgentNotFoundError, match="~nobody-has-this-name"):
        resolve(config, "mine", environment=programs)
    assert "mine" in {offer.name for offer in offers(config, programs) if offer.problem}


def test_an_account_is_explained_and_its_keys_are_not_shown(paths: Paths) -> None:
    write(paths, '[accounts.work]\nagent = "codex"\nenv = { A = "$MINE", B = "sk-written-here" }\n')

    assert {"A": "$MINE", "B": HIDDEN} == explain(paths, "accounts.work.env").value
    assert ("codex", "") == (
        explain(paths, "accounts.work.agent").value,
        explain(paths, "accounts.work.agent").default,
    )
    shown = settings(without_secrets(load(paths)))
    assert {"accounts.work.agent": "codex", "accounts.work.env": {"A": "$MINE", "B": HIDDEN}}.items() <= shown.items()
