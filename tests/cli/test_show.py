"""What `show` says of a session: for people as lines, for programs as an object."""

import msgspec

from kasmon.cli.output.json_objects import shown_object
from kasmon.cli.output.table import mode_words
from kasmon.cli.show import LAST_WORDS, described
from kasmon.model.commands import Mode
from kasmon.model.events import SessionStarted, SettingsChanged
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

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


def test_show_has_the_mode_of_the_agent_how_its_conversation_was_identified_and_its_last_output() -> None:
    lines = described(TOLD, 0.0)

    assert {"  model     claude-best", "  permits   acceptEdits"} <= set(lines)
    assert "  proof     its transcript holds the last prompt" in lines
    assert [f"  stderr    error {number}" for number in range(2, LAST_WORDS + 2)] == lines[-LAST_WORDS:]


def test_an_unknown_value_has_no_line_and_is_null_in_json() -> None:
    empty, full = shown_object(PLAIN, (), (), None), shown_object(TOLD, (), (), None)

    assert not {"model", "permits", "proof", "stderr"} & {line.split()[0] for line in described(PLAIN, 0.0)}
    assert empty.keys() == full.keys()
    for name in ("model", "permission_mode", "proof", "last_words"):
        assert (None, getattr(TOLD, name)) == (empty[name], full[name])
    assert ([], ["streams"], ["claude-best", "claude-small"]) == (empty["models"], full["abilities"], full["models"])


def test_the_reported_mode_of_a_terminal_agent_is_in_its_row_and_an_older_one_is_ignored() -> None:
    agent = Session(id=SessionId("abcdefgh"), name="docs", agent="claude", program="claude", mode=Mode.TMUX)
    told = apply(apply(agent, SessionStarted(at=1.0, mode=Mode.TMUX)), SettingsChanged(at=2.0, permission_mode="auto"))
    assert "tmux (auto)" == mode_words(told)
    assert "  permits   auto" in described(told, 3.0)

    again = apply(told, SessionStarted(at=3.0, mode=Mode.TMUX, generation=2))
    again = msgspec.structs.replace(again, state=SessionState.IDLE)
    assert "tmux" == mode_words(again)
    assert "  permits   not reported by the agent" in described(again, 4.0)
