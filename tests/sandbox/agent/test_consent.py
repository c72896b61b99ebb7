"""Who confirms what a sandbox gets: a person, and no agent that starts another one in it."""

from collections.abc import Iterator

import pytest

from tests.support.agents.leading_agent import start_lead
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer

pytestmark = [pytest.mark.sandboxes, pytest.mark.short]


@pytest.fixture
def kasmon(can_jail: None, fork_server: ForkServer) -> Iterator[Cli]:
    line = Cli(fork_server)
    yield line
    line.close()


def test_an_agent_cannot_confirm_the_files_of_a_sandbox(kasmon: Cli) -> None:
    lead = start_lead(kasmon)
    (kasmon.home / "log-in").write_text("secret\n")
    with kasmon.paths.config_file.open("a") as config:
        config.write(f'\n[agents.boxed]\nprogram = "{kasmon.home}/lead"\nsandbox = "jail"\n')
        config.write(f'[agents.boxed.confined]\nfiles = [{{ source = "{kasmon.home}/log-in" }}]\n')

    assert "which has not been confirmed yet" in lead.kasmon("new", "child", "--agent", "boxed")
    assert "an agent cannot confirm what a sandbox gets" in lead.kasmon("new", "child", "--agent", "boxed", "--yes")
    assert ["lead"] == [each["name"] for each in kasmon.json("ls")["sessions"]]
