"""Real agents in sandboxes that keep memory, for tests: how one is set up there, begins, sleeps, and is rebuilt."""

import contextlib
import json
import re
import shlex
import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kasmon.demo.scratch import clear
from kasmon.model.events import ConfinementSeen
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, Tier
from kasmon.model.session_state import SessionState
from kasmon.paths import private_folder, write_private
from kasmon.process_identity import is_running
from kasmon.sandbox.remote_guest.launch_spec import load_agent_tier
from tests.support.agents.full_stack import LIMIT_S, Stack, killed
from tests.support.wait import until

ONE, TWO, THREE = (f"go %% say {word}" for word in ("one", "two", "three"))
UNASKED: Final = ("-a untrusted", "--sandbox danger-full-access")
"""For codex: what confines it is the sandbox around it."""


def housed(stack: Stack, tier: Tier, *more: str) -> Iterator[Stack]:
    """The stack, with an agent whose profile wants a sandbox of *tier*; its model is reached by the way out.

    *more*: further lines of what its profile says of its sandbox.
    """
    agent, port, name = stack.agent, stack.stub.url.rpartition(":")[2], socket.gethostname()
    url, flags = f"http://{name}:{port}", list[str]()
    if agent.name == "claude":
        stack.variables["ANTHROPIC_BASE_URL"] = url
    elif agent.name == "codex":
        flags = [*_told_by_flags(agent.home / ".codex" / "config.toml", stack.stub.url, url), *UNASKED]
    else:
        own = stack.variables["OPENCODE_CONFIG_CONTENT"]
        stack.variables["OPENCODE_CONFIG_CONTENT"] = own.replace(stack.stub.url, url)
    private_folder(stack.paths.config)
    lines = [f"[agents.{agent.name}]", f'sandbox = "{tier}"', f"flags = {json.dumps(flags)}"]
    lines += [f"[agents.{agent.name}.confined]", f'network = ["private:{name}:{port}"]', *more, ""]
    write_private(stack.paths.config_file, "\n".join(lines).encode())
    yield stack
    policies = [SandboxPolicy(session=SessionId(folder.name), tier=tier) for folder in stack.paths.sessions.iterdir()]
    kept = load_agent_tier(stack.paths, SandboxPolicy(session=SessionId("nobody00"), tier=tier))
    kept.host_folders.base  # noqa: B018 (it is remembered, as it is while the folders stand)
    clear(stack.path)
    for policy in policies:
        with contextlib.suppress(OSError):
            kept.forget(policy)


def _told_by_flags(config: Path, url: str, there: str) -> list[str]:
    """What codex's *config* says, as flags: it is handed no file then, and its memory may go to disk."""
    settings = tomllib.loads(config.read_text())
    config.unlink()
    provider = settings["model_providers"]["stub"]
    provider["base_url"] = provider["base_url"].replace(url, there)
    inline = ", ".join(f"{key} = {json.dumps(value)}" for key, value in provider.items())
    flags = [f'model = "{settings["model"]}"', 'model_provider = "stub"', f"model_providers.stub = {{{inline}}}"]
    return [f"-c {shlex.quote(each)}" for each in flags]


def begun(stack: Stack) -> SessionId:
    """A structured session that is inside, and has had its first turn. It holds no secret."""
    session = stack.new("worker", "", "--yes", env="--env-public")
    seen = until(lambda: stack.facts(session, ConfinementSeen), LIMIT_S, "a look at its sandbox")[-1]
    assert (True, ()) == (seen.ok, seen.mismatches)
    stack.turn(session, ONE)
    return session


def goes_on_from_disk(stack: Stack, session: SessionId) -> None:
    """Put it on disk, where no process of it is left; a prompt wakes it, and it has the same conversation."""
    sandbox_state = stack.session(session).sandbox_state
    assert sandbox_state is not None
    assert sandbox_state.runtime is not None

    paused = stack("sandbox", "pause", session, "--disk")
    assert 0 == paused.code, paused.err
    assert SessionState.PAUSED is stack.session(session).state
    assert not is_running(sandbox_state.runtime.pid, sandbox_state.runtime.started)
    stack.turn(session, TWO)

    assert ONE in stack.heard(TWO)
    assert 1 == stack.session(session).generation


def is_rebuilt(stack: Stack, session: SessionId) -> None:
    """Kill its host, with which its sandbox goes; started again it has the same conversation, and all that was said."""
    known = stack.session(session).resume_id
    killed(stack.host_of(session))
    stack.until_state(session, SessionState.LOST)
    assert 0 == stack("restart", "worker").code
    stack.turn(session, THREE)
    now = stack.session(session)
    assert (known, 2) == (now.resume_id, now.generation)
    assert {ONE, TWO} <= set(stack.heard(THREE))
    assert re.search("our last prompt|(ends with|contains) the last prompt", now.proof)
