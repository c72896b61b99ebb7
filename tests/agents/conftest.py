"""Real agents, offline: a model server on loopback in place of their providers, and a home of the test's own.

    make agents         install the pinned agents (package.json) into .cache/agents
    make test-agents    run these tests; claude and codex must be there
    make test-states    run terminal/test_evidence.py, and print how often a state was read as which

A test names the agent that it drives as a fixture (`claude`, `codex`, `gemini` or `opencode`) and is marked:

    @pytest.mark.agents
    async def test_it_says_what_it_is_told_to(claude: RealAgent, stub: ModelStub) -> None:
        agent = await backend.open(claude.launch())
        await agent.send(Prompt(text="go %% bash touch there.txt %% say done"))
        ...
        assert (claude.workdir / "there.txt").exists()

- `claude` ...: a `RealAgent` (tests/support/agents): `.program`, `.workdir`, `.home`, `.launch(**fields)`, which also
  writes the session's variables file; `.environment` for a test that starts `.program` itself. Where the agent is not
  installed the test is skipped; it fails where KASMON_REQUIRE_AGENTS (`claude,codex` or `all`) names it.
- `stub`: the `ModelStub` that the agent calls: the prompt holds the script (tests/support/model_stub). `.requests` is
  what came in. The test fails if the agent never asked for a turn; where that is right: `stub.must_be_called = False`.
- `scratch`: the folder of both. os.environ is the agent's, too: HOME, TMPDIR and XDG_* lie in there, no variable of a
  developer's agents is left, and the stub is the proxy, which lets nothing out (`stub.outside` tells what was tried).
  The test fails if a process with this HOME is still alive after it; fixtures of the test's own that end agents are
  done by then.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.agents.real_agent import FLAGS, OWN_PREFIXES, RealAgent, agent_binary, nothing_is_left, settled
from tests.support.model_stub import ModelStub

NO_PROXY = "127.0.0.1,localhost"


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    """The model server of this test; the agent must call it."""
    async with ModelStub(delay=0) as stub:
        yield stub
    assert stub.turns or not stub.must_be_called, "the agent never asked the model stub for a turn"


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """HOME, TMPDIR and XDG folders of an agent, and a folder to work in; no process of it survives the test."""
    root = Path(tempfile.mkdtemp(prefix="ka-", dir="/tmp")).resolve()
    home = root / "home"
    folders = {"HOME": home, "TMPDIR": root / "tmp", "XDG_DATA_HOME": home / "data", "XDG_CACHE_HOME": home / "cache"}
    for variable in [name for name in os.environ if name.startswith(OWN_PREFIXES) or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(variable)
    for variable, folder in folders.items():  # codex refuses a home that lies in its TMPDIR
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(folder))
    (root / "work").mkdir()
    yield root
    try:
        nothing_is_left(home)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def build_agent(
    name: str,
    scratch: Path,
    stub: ModelStub,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...] = (),
    *,
    settings: bool = True,
) -> RealAgent:
    """The agent *name* in the folders of *scratch*, with *stub* as its proxy and, by its *settings*, its model."""
    program = agent_binary(name)
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, stub.url)
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(variable, NO_PROXY)
    home, workdir = scratch / "home", scratch / "work"
    own = settled(name, home, workdir, stub.url) if settings else {}
    stub.must_be_called = True
    return RealAgent(name, program, flags or FLAGS.get(name, ()), home, workdir, own)


@pytest.fixture
def claude(scratch: Path, stub: ModelStub, monkeypatch: pytest.MonkeyPatch) -> RealAgent:
    return build_agent("claude", scratch, stub, monkeypatch)


@pytest.fixture
def codex(scratch: Path, stub: ModelStub, monkeypatch: pytest.MonkeyPatch) -> RealAgent:
    return build_agent("codex", scratch, stub, monkeypatch)


@pytest.fixture
def gemini(scratch: Path, stub: ModelStub, monkeypatch: pytest.MonkeyPatch) -> RealAgent:
    return build_agent("gemini", scratch, stub, monkeypatch)


@pytest.fixture
def opencode(scratch: Path, stub: ModelStub, monkeypatch: pytest.MonkeyPatch) -> RealAgent:
    return build_agent("opencode", scratch, stub, monkeypatch)
