"""What `show` says of a session: for people as lines, for programs as an object."""

import msgspec

from kasmon.commands.looking import LAST_WORDS, described
from kasmon.commands.objects import shown_object
from kasmon.model.command import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import SessionState

PLAIN = Session(id=SessionId("abcdefgh"), name="docs", agent="claude", mode=Mode.SDK, backend="claude", workdir="/")
TOLD = msgspec.structs.replace(
    PLAIN,
    state=SessionState.ENDED,
    model="claude-best",
    models=("claude-best", "claude-small"),
    permission_mode="acceptEdits",
    permission_modes=("default", "acceptEdits"),
    abilities=("streams",),
    proof="its transcript holds the last prompt",
    last_words="".join(f"error {number}\n" for number in range(LAST_WORDS + 2)),
)


def test_it_says_how_the_agent_runs_how_its_conversation_is_known_and_its_last_words() -> None:
    lines = described(TOLD, 0.0)

    assert {"  model     claude-best", "  permits   acceptEdits"} <= set(lines)
    assert "  proof     its transcript holds the last prompt" in lines
    assert [f"  stderr    error {number}" for number in range(2, LAST_WORDS + 2)] == lines[-LAST_WORDS:]


def test_what_nobody_said_takes_no_line_and_is_null_for_programs() -> None:
    empty, full = shown_object(PLAIN, (), (), None), shown_object(TOLD, (), (), None)

    assert not {"model", "permits", "proof", "stderr"} & {line.split()[0] for line in described(PLAIN, 0.0)}
    assert empty.keys() == full.keys()
    for name in ("model", "permission_mode", "proof", "last_words"):
        assert (None, getattr(TOLD, name)) == (empty[name], full[name])
    assert ([], ["streams"], ["claude-best", "claude-small"]) == (empty["models"], full["abilities"], full["models"])
