"""The agent's own screen of a structured session is only opened where it keeps to the session's permissions."""

import socket
from collections.abc import Iterator

import msgspec
import pytest

from kasmon.errors import InteractiveOnlyError
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.supervisor.sessions.own_screen import find_own_screen
from tests.support.supervisor.env import Env, launch

SESSION = Session(
    id=SessionId("aaaaaaaa"), name="docs", backend="codex", state=SessionState.IDLE, resume_id="talk-1", mode=Mode.SDK
)


@pytest.fixture
def codex(env: Env) -> Iterator[str]:
    """The program of a session whose server listens."""
    path = env.folder / "codex"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(env.paths.shared_server(SESSION.id)))
        yield str(path)


def started(env: Env, *argv: str, permission_mode: str = "") -> None:
    wanted = launch(SESSION.id, permission_mode=permission_mode, argv=argv)
    path = env.paths.launch(SESSION.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, msgspec.json.encode(msgspec.structs.replace(wanted, agent="codex", workdir=str(env.folder))))


@pytest.mark.parametrize("flags", [(), ("-m", "some", "-c", "model_reasoning_effort=low", "--no-daemon")])
@pytest.mark.parametrize("mode", ["", "plan"])
def test_the_codex_screen_joins_the_conversation_at_the_socket(
    env: Env, codex: str, flags: tuple[str, ...], mode: str
) -> None:
    started(env, codex, *flags, permission_mode=mode)
    screen = find_own_screen(env.paths, SESSION)

    where = f"unix://{env.paths.shared_server(SESSION.id)}"
    assert (codex, "resume", "talk-1", "--remote", where) == screen.argv
    assert env.folder == screen.workdir


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        (("-a", "untrusted"), ""),
        (("--sandbox=read-only",), ""),
        (("--full-auto",), ""),
        (("--add-dir", "/srv"), ""),
        (("-c", 'approval_policy="never"'), ""),
        ((), "never"),
    ],
)
def test_a_session_with_permission_flags_has_no_codex_screen(
    env: Env, codex: str, flags: tuple[str, ...], mode: str
) -> None:
    """Codex refuses them for a screen that joins, so `/new` there would do without."""
    started(env, codex, *flags, permission_mode=mode)

    with pytest.raises(InteractiveOnlyError, match="would not apply this session's permission flags"):
        find_own_screen(env.paths, SESSION)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"backend": "claude"}, "has no terminal"),
        ({"sandbox": "jail"}, "does not reach into its sandbox"),
        ({"state": SessionState.ENDED}, "its codex does not run"),
        ({"resume_id": None}, "its codex does not run"),
    ],
)
def test_a_session_with_an_old_codex_has_no_codex_screen(
    env: Env, codex: str, more: dict[str, object], why: str
) -> None:
    started(env, codex)

    with pytest.raises(InteractiveOnlyError, match=why):
        find_own_screen(env.paths, msgspec.structs.replace(SESSION, **more))


def test_an_invalid_socket_is_not_joined(env: Env, codex: str) -> None:
    started(env, codex)
    env.paths.shared_server(SESSION.id).unlink()
    env.paths.shared_server(SESSION.id).write_text("")

    with pytest.raises(InteractiveOnlyError, match="does not listen on a socket"):
        find_own_screen(env.paths, SESSION)


@pytest.mark.parametrize(
    ("more", "has_one"),
    [
        ({"abilities": ("attaches",)}, True),
        ({"abilities": ("attaches",), "via": "gpu-1"}, False),
        ({}, False),
        ({"mode": Mode.TMUX, "via": "gpu-1"}, True),
    ],
)
def test_the_codex_screen_is_offered_when_it_can_be_opened(more: dict[str, object], has_one: bool) -> None:
    assert has_one is msgspec.structs.replace(SESSION, **more).has_screen
