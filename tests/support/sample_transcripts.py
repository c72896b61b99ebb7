"""Transcripts and terminal screens for tests and pictures."""

from kasmon.model.events import (
    Event,
    MessageWritten,
    PlanItem,
    PlanUpdated,
    RequestOpened,
    SessionStarted,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from tests.support.sample_fleet import DIFF, NOW, command, question


def talk() -> tuple[Event, ...]:
    """A session that works its way to a permission."""
    at = NOW - 600
    asked = command("fix-auth", "rm -rf build && make release")
    return (
        SessionStarted(at=at, generation=1, backend="scripted", model="claude-sonnet"),
        TurnStarted(at=at + 1, prompt="The login test fails since Tuesday. Find out why, and mend it."),
        ThoughtWritten(at=at + 3, text="The token's clock may be compared in local time."),
        ToolStarted(at=at + 4, call="1", tool="Grep", title="expires_at in kasmon/", input="{}"),
        ToolFinished(
            at=at + 5, call="1", output="kasmon/auth.py:41: expires_at = datetime.now()\nkasmon/auth.py:88: ..."
        ),
        MessageWritten(
            at=at + 9,
            text="Found it: `expires_at` is **local time** and is compared with UTC.\n\n"
            "1. Store the expiry in UTC\n2. Compare with `time.time()`\n3. Add a test that runs in another zone",
        ),
        PlanUpdated(
            at=at + 10,
            items=(
                PlanItem(text="Store the expiry in UTC", state="done"),
                PlanItem(text="Add a test in another zone", state="doing"),
                PlanItem(text="Make a release", state="open"),
            ),
        ),
        ToolStarted(at=at + 12, call="2", tool="Edit", title="kasmon/tui/row.py", input="{}"),
        ToolFinished(at=at + 13, call="2", diff=DIFF),
        UsageReported(at=at + 14, input=43_000, output=5_200, context=24_100, limit=200_000, cost_usd=0.31),
        MessageWritten(
            at=at + 20, text="The test passes in Berlin and in Tokyo. I would like to build the release now."
        ),
        RequestOpened(at=NOW - 12, request=asked),
    )


def deep_talk() -> tuple[Event, ...]:
    """A finished turn with a sub-agent, coloured output, a fold and code."""
    at = NOW - 300
    once = 'PATTERN = re.compile(r"[a-z]+")  # once'
    code = f"{once}\n\n\ndef parse(text: str) -> list[str]:\n    return PATTERN.findall(text)"
    tests = "\n".join(f"tests/test_{number}.py \x1b[32mPASSED\x1b[0m" for number in range(20))
    found = "\x1b[35msrc/parse.py\x1b[0m:\x1b[32m12\x1b[0m: re.\x1b[1;31mcompile\x1b[0m(PATTERN)"
    return (
        SessionStarted(at=at, generation=1, backend="scripted"),
        TurnStarted(at=at + 1, prompt="Find out what is slow, and mend it."),
        ToolStarted(at=at + 2, call="task", tool="Task", title="look at the parser"),
        MessageWritten(at=at + 3, text="I look at the parser **first**.", within="task"),
        ToolStarted(at=at + 4, call="grep", tool="Grep", title="compile( in src/", within="task"),
        ToolFinished(at=at + 5, call="grep", output=found),
        ToolFinished(at=at + 6, call="task", output="The pattern is compiled in the loop."),
        ToolStarted(at=at + 7, call="test", tool="Bash", title="pytest -q"),
        ToolFinished(at=at + 20, call="test", output=tests),
        MessageWritten(
            at=at + 25, text=f"It was compiled in the loop:\n\n```python\n{code}\n```\nNow it takes half the time."
        ),
        TurnEnded(at=at + 76),
    )


def short_talk(name: str) -> tuple[Event, ...]:
    """A session that asks a question."""
    at = NOW - 400
    return (
        SessionStarted(at=at, generation=1, backend="scripted"),
        TurnStarted(at=at + 1, prompt="Choose a store for the index."),
        MessageWritten(at=at + 8, text="There are three candidates, and all of them pass the tests."),
        RequestOpened(at=NOW - 95, request=question(name)),
    )


def long_talk(turns: int) -> tuple[Event, ...]:
    """Many finished turns."""
    events: list[Event] = [SessionStarted(at=NOW - 9000, generation=1, backend="scripted")]
    for number in range(turns):
        at = NOW - 8000 + number
        events += [
            TurnStarted(at=at, prompt=f"step {number}"),
            MessageWritten(at=at + 0.1, text=f"Step {number} is done."),
            TurnEnded(at=at + 0.2),
        ]
    return tuple(events)


MAKE = (
    "\x1b[1;35mmake\x1b[0m html",
    "\x1b[36msphinx-build\x1b[0m -b html docs build/html",
    "\x1b[1mrunning Sphinx\x1b[0m v8.2",
    "loading translations [en]... \x1b[32mdone\x1b[0m",
    "building [html]: targets for \x1b[33m14\x1b[0m source files that are out of date",
    "updating environment: 2 added, 12 changed, 0 removed",
    "reading sources... [ 57%] \x1b[35mtmux/hub\x1b[0m",
    "\x1b[33mWARNING\x1b[0m: docs/links.md:12: unknown target: 'conventions'",
    "reading sources... [ 71%] \x1b[35mtui/keys\x1b[0m",
    "\x1b[7m \x1b[0m",
)
SIGN_IN = (
    "\x1b[1;34m Gemini\x1b[0m",
    "",
    " To continue, sign in.",
    "",
    " \x1b[32m>\x1b[0m 1. Open a browser",
    "   2. Use an API key",
    "",
    " \x1b[2m(enter to choose)\x1b[0m",
)
