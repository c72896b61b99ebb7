"""A secret of a session stays in its two files and with its agent, however often the agent says it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kasmon.model.events import MessageWritten, ToolFinished
from tests.support.agents.full_stack import Stack, beside, stacked
from tests.support.agents.real_agent import family

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)

SECRET: Final = "planted \\ 5ecr3t-of-a-test"
"""It looks like no token, and JSON writes it in another way."""
COMMAND: Final = 'printf %s "$PLANTED"; printf %s "$PLANTED" >&2; exit 3'


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_planted_secret_appears_only_where_it_belongs(stack: Stack) -> None:
    stack.configure(*stack.asking)
    stack.variables["PLANTED"] = SECRET
    session = stack.new("worker", f"it is {SECRET} %% bash {COMMAND} %% say it is {SECRET}", "--env", "PLANTED")
    request = stack.asked()
    running = [word for process in family(stack.agent.home) for word in process.cmdline()]
    assert 0 == stack.answer(request, "allow").code
    stack.turned(session)
    last = f"again {SECRET} %% bash echo {SECRET} %% say done"
    assert 0 == stack("send", "worker", "-", given=last).code
    shown = stack("inbox", "--json").out if stack.asked(session) else ""
    assert 0 == stack.answer(stack.asked(session), "deny", "--reason", SECRET).code
    stack.turned(session, 1)
    stack("stop", "worker")

    assert any(SECRET in prompt for prompt in stack.heard(last))
    [*_, output] = [fact.output for fact in stack.facts(session, ToolFinished)[:1]]
    assert 2 == output.count(f"⟨hidden: {len(SECRET)} characters⟩")
    assert f"it is ⟨hidden: {len(SECRET)} characters⟩" in [fact.text for fact in stack.facts(session, MessageWritten)]
    report, text = stack("doctor", "--report").out, stack("read", "worker").out
    for written in (*running, shown, report, text, stack("show", "worker", "--json").out):
        assert not holds(written.encode())
    own = {stack.paths.environment(session), stack.paths.launch(session)}
    assert own >= {file for file in files(stack.path) if holds(file.read_bytes())}
    assert {0o600} == {file.stat().st_mode & 0o777 for file in own}


def holds(content: bytes) -> bool:
    return any(form in content for form in (SECRET.encode(), SECRET.replace("\\", "\\\\").encode(), b"5ecr3t"))


def files(folder: Path) -> Iterator[Path]:
    """All that kasmon has written."""
    found = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    assert {"events.jsonl", "host.log"} <= {file.name for file in found}
    yield from found
