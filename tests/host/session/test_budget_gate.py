"""What holds queued prompts while the config changes: the real command, the real file."""

import asyncio
import os

import pytest

from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.session.budget_gate import BudgetGate
from tests.support.host.env import ME, Env


async def test_an_invalid_config_releases_no_prompt_that_a_budget_holds(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person is editing it."""
    for name in [name for name in os.environ if name.startswith(("XDG_", "KASM"))]:
        monkeypatch.delenv(name)
    for name, value in env.environment.items():
        monkeypatch.setenv(name, value)
    env.wants()
    env.paths.config.mkdir(mode=0o700)
    gate = BudgetGate(log_writer := LogWriter(await asyncio.to_thread(SessionLog, env.paths, ME)))

    async def hold(text: str) -> str:
        await asyncio.to_thread(env.paths.config_file.write_text, text)
        return await asyncio.to_thread(gate.find_hold)

    assert "" == await hold("[budget\n"), "nothing was held"
    assert "there is no session" in await hold('[budget]\nper_day = "1k"\n')
    assert "is not valid" in await hold('[budget]\nper_day = "1k\n')
    assert "there is no session" in await hold('[budget]\nper_day = "2k"\n')
    assert "" == await hold("")
    await log_writer.aclose(1.0)
