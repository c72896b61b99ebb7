"""What a folder brings along as its own config: found, read once, and data until a person trusts just that."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kasmon.config import Config, Profile, SandboxConfig
from kasmon.config.folder_config import LARGEST_BYTES, NAME, FolderConfig, overlay, read_folder_config
from kasmon.config.folder_config_text import defines, describe_changes
from kasmon.config.schema import SHIPPED, TemplateConfig
from kasmon.errors import ConfigError, RefusedError
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths
from kasmon.store.trusted_folders import TrustedFolders
from kasmon.supervisor.sessions.folder_config import check_brought, for_session, in_folder, profile_hash
from tests.support.git_repo import Repo

HELPER = '[agents.helper]\nprogram = "./helper"\n'


def brings(folder: Path, text: str = HELPER) -> Path:
    """*folder*, which is the root of a repository and brings *text* along."""
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    (folder / ".git" / "HEAD").touch()
    (folder / NAME).write_text(text)
    return folder


def found(folder: Path) -> FolderConfig:
    local = read_folder_config(folder)
    assert local is not None
    return local


def config_file(text: str) -> int:
    """Let a person's own config say *text*."""
    file = user_paths().config_file
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.write_text(text)


def trusted(folder: Path) -> Path:
    TrustedFolders(user_paths()).add(found(folder), 1.0)
    return folder


def counts(folder: Path) -> bool:
    here = in_folder(user_paths(), Config(), folder)
    assert here.counts == ("helper" in here.config.agents)
    assert here.counts or here.notice
    return here.counts


# Where it is found.


def test_the_folder_config_is_at_the_root_of_the_repository(tmp_path: Path) -> None:
    repo = brings(tmp_path / "repo")
    inner = repo / "src" / "deep"
    inner.mkdir(parents=True)
    (inner / NAME).write_text("default_agent = 'shell'\n")

    assert str(repo) == found(inner).root
    assert HELPER.encode() == found(inner).content


def test_outside_of_a_repository_the_config_is_that_of_the_folder_and_not_of_a_parent(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(HELPER)
    (tmp_path / ".git").mkdir()  # empty: git takes it for nothing
    (tmp_path / "inner").mkdir()

    assert str(tmp_path) == found(tmp_path).root
    assert read_folder_config(tmp_path / "inner") is None


def test_a_folder_without_a_config_or_a_missing_one_changes_nothing(tmp_path: Path) -> None:
    config = Config(default_agent="shell")
    for folder in (tmp_path, tmp_path / "gone", tmp_path / "no\0where"):
        here = in_folder(user_paths(), config, folder)

        assert (config, None, "") == (here.config, here.local, here.notice)


# What is no config at all.


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # its path may be longer than a socket's
        listener.bind(path.name)
        os.chdir(here)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (_fifo, "not a regular file"),
    "socket": (_socket, "cannot be read"),
    "folder": (lambda path: path.mkdir(), "not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "it is a symbolic link"),
    "link": (lambda path: path.symlink_to(path.with_name("other.toml")), "it is a symbolic link"),
    "huge": (lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40), "larger than 16 KB"),
    "too long": (lambda path: path.write_bytes(b"#" * (LARGEST_BYTES + 1)), "larger than 16 KB"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_config_that_is_not_a_regular_file_is_ignored_and_blocks_nothing(tmp_path: Path, kind: str) -> None:
    make, why = HOSTILE[kind]
    (tmp_path / "other.toml").write_text(HELPER)
    make(tmp_path / NAME)

    local = found(tmp_path)
    TrustedFolders(user_paths()).add(local, 1.0)

    assert why in local.fault
    assert (b"", "") == (local.content, local.digest)
    assert not counts(tmp_path)
    assert why in in_folder(user_paths(), Config(), tmp_path).notice


def test_a_config_of_the_maximum_size_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(HELPER.encode() + b"#" * (LARGEST_BYTES - len(HELPER)))

    assert counts(trusted(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"= 1",
        b"a = " + b"[" * 10_000,
        b"a = " + b"9" * 5_000,
        b"[limits]\ncall_s = " + b"9" * 400,
        b"[limits]\nstuck_after_calls = " + b"9" * 400,
        b"[agents.x]\nprogram = 7",
        b"agents = 1",
        b"[agents.'\\u001b[2J']\nprogram = 'x'",
        b"[agents.x]\n",
        b"nothing.like.this = 1",
        b"default_agent = 'nobody'",
        b".".join([b"a"] * 500) + b" = 1",
    ],
    ids=lambda content: content[:24].decode("utf-8", "replace"),
)
def test_an_invalid_value_is_reported_as_a_fault_of_the_file_also_once_it_is_trusted(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / NAME).write_bytes(content)

    with pytest.raises(ConfigError):
        describe_changes(Config(), found(tmp_path))
    assert not defines(found(tmp_path), "nobody")
    here = in_folder(user_paths(), Config(), trusted(tmp_path))
    assert (Config(), False) == (here.config, here.counts)
    assert NAME in here.notice


# What it means, once it counts.


def test_a_folder_config_has_priority_over_the_users_config_and_changes_only_its_own_keys(tmp_path: Path) -> None:
    own = Config(
        default_agent="mine",
        agents={**SHIPPED, "mine": Profile(program="m", model="large", env={"A": "1", "B": "1"}, sandbox="jail")},
    )
    brings(tmp_path, '[agents.mine]\nflags = ["-x"]\nenv = { B = "2" }\n')

    after = overlay(own, found(tmp_path))

    assert after == msgspec.structs.replace(
        own,
        agents=dict(own.agents)
        | {"mine": Profile(program="m", flags=("-x",), model="large", env={"A": "1", "B": "2"}, sandbox="jail")},
    )


def test_only_keys_for_new_sessions_apply(tmp_path: Path) -> None:
    """Commands, keys and endpoints of the dashboard and of other sessions are the person's own."""
    own = Config()
    brings(
        tmp_path,
        'default_agent = "shell"\n[notify]\ncommand = ["x"]\n[remote]\nssh = ["x"]\n[keys]\nquit = "x"\n'
        '[plans]\nbelieve = true\n[sandbox]\nproject = "/"\n',
    )

    assert msgspec.structs.replace(own, default_agent="shell") == overlay(own, found(tmp_path))
    assert (
        "It is ignored for keys, notify, plans, remote, sandbox: only your own config applies there."
        in describe_changes(own, found(tmp_path))
    )


# Trust: this content, of this folder, by its own path.


def test_a_config_does_not_apply_before_the_user_trusts_it(tmp_path: Path) -> None:
    repo = brings(tmp_path / "repo")

    assert not counts(repo)
    assert f"`kasmon trust {repo}`" in in_folder(user_paths(), Config(), repo).notice
    assert counts(trusted(repo))


def test_one_changed_byte_revokes_trust_and_the_old_content_restores_it(tmp_path: Path) -> None:
    repo = trusted(brings(tmp_path / "repo"))

    brings(repo, HELPER + "\n")
    assert not counts(repo)
    assert "not the one that you trusted" in in_folder(user_paths(), Config(), repo).notice
    brings(repo)
    assert counts(repo)


def test_earlier_trusted_content_does_not_apply_any_more(tmp_path: Path) -> None:
    """Else an older commit would bring back what a person has replaced."""
    repo = trusted(brings(tmp_path / "repo"))
    trusted(brings(repo, HELPER + "#\n"))
    brings(repo)

    assert not counts(repo)


def test_a_worktree_a_submodule_and_a_copy_are_other_folders(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo")
    repo.commit(NAME, HELPER)
    repo.git("worktree", "add", "--quiet", str(tmp_path / "tree"))
    outer = Repo(tmp_path / "outer")
    brings(outer.folder)
    outer.git("submodule", "--quiet", "add", str(repo.folder), "inner")
    subprocess.run(["cp", "-r", repo.folder, tmp_path / "copy"], check=True)
    for folder in (repo.folder, outer.folder):
        trusted(folder)

    assert counts(repo.folder)
    for other in (tmp_path / "tree", outer.folder / "inner", tmp_path / "copy"):
        assert HELPER.encode() == found(other).content
        assert not counts(other)
    assert counts(repo.folder)


@pytest.mark.parametrize("way", ["link", "link/src", "repo/../link", "link/../link/src"])
def test_a_config_reached_by_a_link_does_not_apply(tmp_path: Path, way: str) -> None:
    repo = trusted(brings(tmp_path / "repo"))
    (repo / "src").mkdir()
    (tmp_path / "link").symlink_to(repo)

    assert not counts(tmp_path / way)
    assert str(repo) in in_folder(user_paths(), Config(), tmp_path / way).notice
    assert all(counts(tmp_path / straight) for straight in ("repo", "repo/src", "repo/src/..", "repo/./src/"))


def test_another_folder_in_its_place_is_not_trusted(tmp_path: Path) -> None:
    repo = trusted(brings(tmp_path / "repo"))
    repo.rename(tmp_path / "old")
    brings(repo)

    assert not counts(repo)
    assert not counts(tmp_path / "old")


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b'[{"root": 1}]', b"\xff", b'{"a": 1}'])
def test_an_unreadable_trust_record_trusts_nothing(tmp_path: Path, record: bytes) -> None:
    repo = trusted(brings(tmp_path / "repo"))
    (user_paths().state / "local-trust.json").write_bytes(record)

    assert not counts(repo)


def test_the_compared_content_is_the_applied_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = trusted(brings(tmp_path / "repo"))
    compare = TrustedFolders.counts

    def swapped(self: TrustedFolders, local: FolderConfig) -> bool:
        brings(repo, HELPER.replace("./helper", "./worse"))
        return compare(self, local)

    monkeypatch.setattr(TrustedFolders, "counts", swapped)

    assert "./helper" == in_folder(user_paths(), Config(), repo).config.agents["helper"].program
    assert not in_folder(user_paths(), Config(), repo).counts


# Who names what only it defines.


def test_an_agent_that_only_the_folder_config_defines_is_refused_by_name_until_it_is_trusted(tmp_path: Path) -> None:
    repo = brings(tmp_path / "repo")

    with pytest.raises(RefusedError) as refused:
        for_session(user_paths(), Config(), str(repo), "helper")
    assert f"kasmon trust {repo}" in refused.value.hint
    assert Config() == for_session(user_paths(), Config(), str(repo), "claude").config
    assert Config() == for_session(user_paths(), Config(), str(repo), "nobody").config
    assert "helper" in for_session(user_paths(), Config(), str(trusted(repo)), "helper").config.agents


def test_on_another_machine_the_folder_config_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trusted(brings(tmp_path / "repo")))

    here = for_session(user_paths(), Config(), "", "shell@elsewhere")

    assert (Config(), None, "") == (here.config, here.local, here.notice)


# Who was begun by it.


@pytest.mark.parametrize(
    ("then", "goes_on"),
    [
        (lambda repo: None, True),
        (lambda repo: TrustedFolders(user_paths()).remove(str(repo)), False),
        (lambda repo: brings(repo, HELPER + "# more"), False),
        (lambda repo: trusted(brings(repo, HELPER + "# more")), True),
        (lambda repo: trusted(brings(repo, HELPER + 'flags = ["-x"]')), False),
        (lambda repo: (repo / NAME).unlink(), False),
        (lambda repo: (repo / NAME).write_text("") + config_file(HELPER), True),
    ],
    ids=["as it was", "withdrawn", "changed", "changed, trusted", "another agent, trusted", "gone", "now the person's"],
)
def test_an_agent_that_the_folder_config_changed_is_restarted_only_while_that_is_trusted(
    tmp_path: Path, then: Callable[[Path], object], goes_on: bool
) -> None:
    repo = trusted(brings(tmp_path / "repo"))
    config = in_folder(user_paths(), Config(), repo).config
    launch = Launch(
        session=SessionId("abc"),
        name="one",
        agent="helper",
        mode=Mode.TMUX,
        backend="tmux",
        workdir=str(repo),
        brought=profile_hash(user_paths(), config, str(repo), "helper"),
    )
    then(repo)

    with contextlib.nullcontext() if goes_on else pytest.raises(RefusedError, match="is now ignored"):
        check_brought(user_paths(), launch)


def test_an_agent_that_the_folder_config_does_not_affect_is_restarted_always(tmp_path: Path) -> None:
    repo = trusted(brings(tmp_path / "repo"))

    assert "" == profile_hash(user_paths(), in_folder(user_paths(), Config(), repo).config, str(repo), "claude")
    assert "" == profile_hash(user_paths(), Config(), str(tmp_path), "helper")


# In words.

OTHERWISE = {
    "program": '"./x"',
    "flags": '["-x"]',
    "enabled": "false",
    "execution_mode": '"sdk"',
    "protocol": '"acp"',
    "acp": '["--x"]',
    "model": '"x"',
    "env": '{ X = "./x" }',
    "clipboard": "true",
    "worktree": "true",
    "tools": '["fleet"]',
    "sandbox": '"jail"',
    "confined": '{ project = "./x" }',
}
SANDBOX_OTHERWISE = {
    "tier": '"microvm"',
    "size": '"max"',
    "template": '"x"',
    "network": '["x.example"]',
    "refuse": '["y.example"]',
    "project": '"/x"',
    "project_writable": "true",
    "mounts": '[{ source = "/x", writable = true }]',
    "volatile": '[{ path = "/x", content = "y" }]',
    "services": '[{ name = "x", port = 1, start = "./x" }]',
    "credentials": '[{ name = "X", command = ["./x", "y"] }]',
    "files": '[{ source = "~/.x" }]',
}


@pytest.mark.parametrize("field", Profile.__struct_fields__)
def test_every_change_of_an_agent_is_reported(tmp_path: Path, field: str) -> None:
    """A field without a value here is a new one: give it one, and see what a person would read."""
    brings(tmp_path, f"[agents.claude]\n{field} = {OTHERWISE[field]}\n")

    assert any("x" in line or field in line for line in describe_changes(Config(), found(tmp_path)))


@pytest.mark.parametrize("field", SandboxConfig.__struct_fields__)
def test_every_change_of_a_sandbox_is_reported(tmp_path: Path, field: str) -> None:
    brings(tmp_path, f"[agents.claude.confined]\n{field} = {SANDBOX_OTHERWISE[field]}\n")

    assert any(f"The sandbox of 'claude': {field} = " in line for line in describe_changes(Config(), found(tmp_path)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('default_agent = "shell"', "Sessions without an agent start 'shell'."),
        (HELPER, "A new agent 'helper' runs this command: ./helper"),
        ('[agents.claude]\nflags = ["-x y"]', "The agent 'claude' runs this command: claude -x y"),
        (
            '[agents.claude]\nflags = ["--permission-mode bypassPermissions"]',
            "skips permission requests: it never asks",
        ),
        ('[templates.fix]\nagent = "claude"', "A new template 'fix' starts 'claude'."),
        ('[templates.fix]\nsandbox = ""', "The template 'fix': sandbox = \"\""),
        ('[templates.own]\nprompt = "rm {x}"', "The template 'own': prompt = \"rm {x}\""),
        ('[agents.claude.env]\nANTHROPIC_BASE_URL = "http://x"', "who gets its keys"),
        ('[agents.mine]\nsandbox = ""', "'mine' runs in NO sandbox; your own config uses 'jail'."),
        (
            '[agents.claude.confined]\ncredentials = [{ name = "X", command = ["./x", "y z"] }]',
            "For X, this command runs on this machine without a sandbox: ./x 'y z'",
        ),
    ],
)
def test_a_change_that_could_run_a_program_or_weakens_protection_is_marked(
    tmp_path: Path, text: str, told: str
) -> None:
    own = Config(
        agents={**SHIPPED, "mine": Profile(program="m", sandbox="jail")},
        templates={"own": TemplateConfig(prompt="ls {x}")},
    )
    brings(tmp_path, f"{text}\n")

    assert told in "\n".join(describe_changes(own, found(tmp_path)))


def test_an_agent_with_a_protocol_only_is_reported_to_skip_permissions_in_a_terminal(tmp_path: Path) -> None:
    brings(tmp_path, '[agents.cline]\nflags = ["--verbose"]\n')
    cline = Profile(program="cline", acp=("--acp",))

    for profile, skips in ((cline, True), (msgspec.structs.replace(cline, execution_mode="sdk"), False)):
        told = "\n".join(describe_changes(Config(agents={**SHIPPED, "cline": profile}), found(tmp_path)))
        assert skips == ("skips permission requests" in told)
