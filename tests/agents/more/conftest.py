"""The agents of `make more-agents`: a test takes `name` as a parameter, and `agent`."""

import os
from pathlib import Path

import pytest

from tests.agents.conftest import build_agent
from tests.support.agents.more_agents import AGENTS
from tests.support.agents.real_agent import MORE_INSTALLED, RealAgent
from tests.support.model_stub import ModelStub


@pytest.fixture
def agent(name: str, scratch: Path, stub: ModelStub, monkeypatch: pytest.MonkeyPatch) -> RealAgent:
    """The agent *name*, with the node that it needs on its PATH."""
    monkeypatch.setenv("PATH", f"{MORE_INSTALLED}:{os.environ['PATH']}")
    return build_agent(name, scratch, stub, monkeypatch, AGENTS[name].acp)


@pytest.fixture
def new_agent(name: str, scratch: Path, stub: ModelStub, monkeypatch: pytest.MonkeyPatch) -> RealAgent:
    """The agent *name* as after its installation: without settings and without an account."""
    monkeypatch.setenv("PATH", f"{MORE_INSTALLED}:{os.environ['PATH']}")
    agent = build_agent(name, scratch, stub, monkeypatch, AGENTS[name].acp, settings=False)
    stub.must_be_called = False
    return agent
