"""What is started: the user's flags unchanged, the protocol's behind them, and an environment that is nobody else's."""

from pathlib import Path
from typing import Any

import pytest

from kasmon.backends.claude.command_line import PROTOCOL, command, environment, model_of
from kasmon.backends.claude.handshake import check, plan_launch
from kasmon.backends.claude.transport import controlling
from kasmon.errors import LaunchError
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)


def launch(*flags: str, **more: Any) -> Launch:
    fields: dict[str, Any] = {"session": SessionId("s"), "name": "s", "agent": "claude", "mode": Mode.SDK}
    return Launch(**(fields | {"backend": "claude", "argv": ("/bin/claude", *flags), "workdir": "/work"} | more))


def test_the_users_flags_reach_the_program_unchanged_and_first_and_change_no_protocol() -> None:
    flags = ("--permission-mode", "bypassPermissions", "--add-dir", "a b", "--settings", '{"x": 1}', "--any-thing")
    assert ["/bin/claude", *flags, *PROTOCOL] == command(launch(*flags))

    line = command(launch("--output-format", "text", "--", "words"))
    assert line.index("text") < line.index("stream-json") < line.index("--")


def test_a_model_of_the_profile_is_a_default_that_a_flag_overrules() -> None:
    line = command(launch("--model", "opus", model="sonnet"))

    assert line.index("sonnet") < line.index("opus")
    assert ["opus", "sonnet", "haiku", ""] == [
        model_of(line),
        model_of(command(launch(model="sonnet"))),
        model_of(command(launch("--model=haiku"))),
        model_of(command(launch())),
    ]


def test_a_new_conversation_gets_an_id_at_once() -> None:
    first, second = plan_launch(launch()), plan_launch(launch())

    assert f"--session-id={first.conversation}" in first.argv
    assert first.conversation != second.conversation


@pytest.mark.parametrize("flag", ["--continue", "-c", "--resume", "--resume=x", "--session-id=y"])
def test_a_conversation_that_the_user_chose_gets_none_of_ours(flag: str) -> None:
    plan = plan_launch(launch(flag))

    assert "" == plan.conversation
    assert not [word for word in plan.argv if word.startswith("--session-id=") and word != flag]


def test_a_conversation_goes_on_by_its_id_unless_that_looks_like_a_flag() -> None:
    plan = plan_launch(launch("--continue", resume="the-id", remembers="hello", generation=2))
    assert "--resume=the-id" in plan.argv
    assert plan.argv.index("--continue") < plan.argv.index("--resume=the-id")

    assert "--resume=--dangerous" in plan_launch(launch(resume="--dangerous", remembers="x")).argv


def test_a_profile_without_a_program_is_refused() -> None:
    with pytest.raises(LaunchError, match="no program"):
        plan_launch(launch(argv=()))


def test_the_agent_gets_its_own_variables_and_not_those_of_other_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "ANTHROPIC_API_KEY",
        "AWS_REGION",
        "CLAUDE_CODE_USE_BEDROCK",
        "OPENAI_API_KEY",
        "SECRET",
        "CLAUDECODE",
    ):
        monkeypatch.setenv(name, "a value")

    given = plan_launch(launch()).variables

    assert {"ANTHROPIC_API_KEY", "AWS_REGION", "CLAUDE_CODE_USE_BEDROCK", "KASMON_SESSION", "PATH"} <= given.keys()
    assert not {"OPENAI_API_KEY", "SECRET", "CLAUDECODE"} & given.keys()


def test_the_environment_says_what_the_protocol_needs() -> None:
    given = environment(launch(), {"PATH": "/bin"}, "1.2.3")

    assert ("1", "1.2.3", "/work") == (
        given["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"],
        given["CLAUDE_AGENT_SDK_VERSION"],
        given["PWD"],
    )


def test_an_empty_config_folder_is_ignored() -> None:
    """The agent would write its transcripts into the folder that it works in."""
    assert "CLAUDE_CONFIG_DIR" not in environment(launch(), {"CLAUDE_CONFIG_DIR": ""}, "1")
    assert "/c" == environment(launch(), {"CLAUDE_CONFIG_DIR": "/c"}, "1")["CLAUDE_CONFIG_DIR"]


def test_the_sdk_gets_control_messages_only() -> None:
    assert controlling({"type": "assistant", "message": {}}) is None
    assert controlling({"type": "control_request", "request_id": 7, "request": {"subtype": "x"}}) is None


def test_the_sdk_sends_no_answer_by_itself() -> None:
    """It would deny a request whose suggestions it cannot read; and it knows a call only by the id that we give it."""
    asks = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "permission_suggestions": [7]}
    given = controlling({"type": "control_request", "request_id": "r1", "request": asks})

    assert given is not None
    wanted = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "r1"}
    assert wanted == given["request"]


@pytest.mark.parametrize("version", ["", "2", "2.0", "2.0.0", "2.1.330", "custom build 1", None])
def test_an_unknown_newer_version_is_accepted(version: str | None) -> None:
    check(launch(), plan_launch(launch()), {"claude_code_version": version}, "")


@pytest.mark.parametrize("version", ["1.0.99", "1.9.9 (Claude Code)"])
def test_a_version_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(LaunchError, match=rf"claude {version.split()[0]} is too old"):
        check(launch(), plan_launch(launch()), {"claude_code_version": version}, "")
