"""What passes to an agent of its starter's environment, and what of it nobody may see."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from kasmon.backends.common.environment import (
    build_environment,
    decoded,
    encoded,
    inherited,
    own_prefixes,
    secret_values,
)
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths, write_private

AROUND = {
    "PATH": "/bin",
    "LC_ALL": "C.UTF-8",
    "ANTHROPIC_API_KEY": "key-of-claude",
    "OPENAI_API_KEY": "key-of-codex",
    "GEMINI_API_KEY": "key-of-gemini",
    "OPENCODE_API_KEY": "key-of-opencode",
    "AMP_API_KEY": "key-of-amp",
    "GITHUB_TOKEN": "key-of-somebody-else",
    "KASMON_SESSION": "outer",
    "CLAUDECODE": "1",
    "CODEX_THREAD_ID": "outer",
}
S = SessionId("abcdefgh")


@pytest.mark.parametrize(
    ("argv", "keys"),
    [
        (("/usr/local/bin/claude", "--model", "x"), {"ANTHROPIC_API_KEY"}),
        (("codex",), {"OPENAI_API_KEY"}),
        (("npx", "-y", "/opt/gemini.js"), {"GEMINI_API_KEY"}),
        (("env", "DEBUG=1", "gemini-cli"), {"GEMINI_API_KEY"}),
        (("amp",), {"AMP_API_KEY"}),
        (("opencode",), {"OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"}),
        (("bash", "claude"), set()),
        (("/bin/sh",), set()),
        ((), set()),
    ],
    ids=lambda value: " ".join(sorted(value) if isinstance(value, set) else value),
)
def test_an_agent_gets_what_every_agent_gets_and_its_own_keys_but_no_others(
    argv: tuple[str, ...], keys: set[str]
) -> None:
    assert {"PATH", "LC_ALL"} | keys == inherited(own_prefixes(argv), AROUND).keys()


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN",
        "PGPASSWORD", "MYSQL_PWD", "SSHPASS", "OPENAI_KEY", "npm_config__auth", "GH_PAT", "SENTRY_DSN", "CREDENTIALS",
        "CLAUDE_CODE_OAUTH_TOKEN", "private_key", "SESSION_COOKIE", "OTEL_EXPORTER_OTLP_HEADERS",
    ],
)  # fmt: skip
def test_a_value_is_secret_by_its_name(name: str) -> None:
    assert ("some-value",) == secret_values({name: "some-value"})


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "MAX_THINKING_TOKENS", "PWD",
        "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS", "PATH",
        "API_KEY_FILE", "KEYBOARD_LAYOUT", "DISABLE_TELEMETRY",
    ],
)  # fmt: skip
def test_a_name_that_only_resembles_a_secret_is_public(name: str) -> None:
    assert () == secret_values({name: "some-value"})


def test_what_is_short_is_none_and_the_password_in_an_address_and_each_header_is() -> None:
    assert () == secret_values({"API_KEY": "short"})

    proxy = {"HTTPS_PROXY": "http://me:hunter2hunter2@proxy:3128/", "NO_PROXY": "http://me@proxy:80"}
    headers = {"ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer abcdefgh123\nX-Key: key-of-mine"}
    assert ("hunter2hunter2",) == secret_values(proxy)
    assert {*headers.values(), "abcdefgh123", "key-of-mine"} == set(secret_values(headers))


def test_variables_pass_through_a_file_byte_for_byte() -> None:
    odd = {"A": "x=y\nz", "B": "\udcff", "C": ""}

    assert odd == decoded(encoded(odd))


def test_all_passed_variables_are_secret_and_others_are_by_their_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {**AROUND, "ANTHROPIC_MODEL": "claude-best"}.items():
        monkeypatch.setenv(name, value)
    where = user_paths()
    where.folder(S).mkdir(mode=0o700, parents=True)
    write_private(where.environment(S), encoded({"PLANTED": "planted value", "ANTHROPIC_MODEL": "another"}))
    launch = Launch(session=S, name="x", agent="claude", mode=Mode.SDK, backend="claude", workdir=str(tmp_path))

    made = build_environment(launch, own_prefixes(("claude",)), dict(os.environ))

    assert {"key-of-claude", "planted value", "another"} == set(made.secrets)
    assert "another" == made.variables["ANTHROPIC_MODEL"]
    assert "planted value" == made.variables["PLANTED"]
    assert not {"OPENAI_API_KEY", "GITHUB_TOKEN", "CLAUDECODE"} & made.variables.keys()


def structured(folder: Path) -> Launch:
    return Launch(session=S, name="x", agent="claude", mode=Mode.SDK, backend="claude", workdir=str(folder))


def test_kasmon_is_last_on_the_agents_path_unless_it_is_there_already(tmp_path: Path) -> None:
    path = build_environment(structured(tmp_path), (), {"PATH": "/usr/bin:/bin"}).variables["PATH"]

    before, _, added = path.rpartition(":")
    assert ("/usr/bin:/bin", ["kasmon"]) == (before, [file.name for file in Path(added).iterdir()])
    told = subprocess.run(["kasmon", "--version"], env={"PATH": path}, capture_output=True, check=True, cwd="/")
    assert told.stdout.strip()
    (Path(added) / "kasmon").write_text("#!/bin/sh\nexec /gone/python\n")
    assert path == build_environment(structured(tmp_path), (), {"PATH": "/usr/bin:/bin"}).variables["PATH"]
    subprocess.run(["kasmon", "--version"], env={"PATH": path}, capture_output=True, check=True, cwd="/")


def test_a_path_with_a_kasmon_or_into_a_sandbox_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "kasmon").write_text("#!/bin/sh\n")
    (tmp_path / "kasmon").chmod(0o700)
    confined = msgspec.structs.replace(structured(tmp_path), sandbox="jail")

    assert str(tmp_path) == build_environment(structured(tmp_path), (), {"PATH": str(tmp_path)}).variables["PATH"]
    assert "/bin" == build_environment(confined, (), {"PATH": "/bin"}).variables["PATH"]
