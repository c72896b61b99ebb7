"""The agents that `make agents` installs are the pinned ones, and each does what its prompt tells the model stub."""

import asyncio
import subprocess

import pytest

from tests.support.agents.real_agent import INSTALLED, PACKAGES, RealAgent, agent_binary, pinned_version

pytestmark = [pytest.mark.agents, pytest.mark.short]
PROMPT = "go %% think hm %% say at work %% bash echo one >made.txt %% say all done"


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.usefixtures("scratch")
def test_an_agent_is_of_the_pinned_version(name: str) -> None:
    program = agent_binary(name)
    if not program.is_relative_to(INSTALLED.parent):
        pytest.skip(f"{program} was not installed by `make agents`")

    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout

    assert pinned_version(name) in said.split()


async def output_of(agent: RealAgent, *flags: str) -> str:
    """What the agent writes when it does one prompt and ends."""
    process = await asyncio.create_subprocess_exec(
        agent.program,
        *flags,
        cwd=agent.workdir,
        env=agent.environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode()


def made(agent: RealAgent) -> str:
    return (agent.workdir / "made.txt").read_text()


async def test_claude_follows_the_script(claude: RealAgent) -> None:
    assert "all done" in await output_of(claude, "-p", "--allowedTools", "Bash", "--", PROMPT)
    assert "one\n" == made(claude)


async def test_codex_follows_the_script(codex: RealAgent) -> None:
    flags = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")

    assert "all done" in await output_of(codex, *flags, PROMPT)
    assert "one\n" == made(codex)


async def test_gemini_follows_the_script(gemini: RealAgent) -> None:
    assert "all done" in await output_of(gemini, "--skip-trust", "--approval-mode", "yolo", "-p", PROMPT)
    assert "one\n" == made(gemini)


async def test_opencode_follows_the_script(opencode: RealAgent) -> None:
    assert "all done" in await output_of(opencode, "run", "--dangerously-skip-permissions", PROMPT)
    assert "one\n" == made(opencode)
