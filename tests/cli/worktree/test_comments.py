"""`kasmon comment` and `kasmon comments`: written into the log, listed with their state, sent as one prompt."""

from kasmon.model.events import CommentsSent, CommentWritten, TurnStarted
from kasmon.store.event_log import EventLog
from tests.support.cli.cli_runner import Cli
from tests.support.cli.turns import started, write
from tests.support.wait import until


def test_comments_are_written_sent_as_one_prompt_and_resolved_when_their_lines_change(kasmon: Cli) -> None:
    repo = started(kasmon)
    write(repo.folder / "src" / "a.py", "one\ntwo\nthree\n")

    first = kasmon.json("comment", "one", "src/a.py:2-3", "say\x1b[31m why")["comment"]
    assert (["two", "three"], "say why") == (first["lines"], first["text"])
    assert 0 == kasmon("comment", "one", f"{repo.folder}/file0.txt:1", "other").code
    session = kasmon.json("show", "one")["session"]["id"]
    assert 2 == sum(isinstance(event, CommentWritten) for event in EventLog(kasmon.paths.log(session)).events())

    sent = kasmon.json("comments", "one", "--send", "--when", "idle")
    assert ["sent", "sent"] == [each["state"] for each in sent["comments"]]
    assert sent["receipt"]["id"] == sent["comments"][0]["receipt"]

    def prompts() -> list[str]:
        events = [*EventLog(kasmon.paths.log(session)).events()]
        assert any(isinstance(event, CommentsSent) for event in events)
        return [event.prompt for event in events if isinstance(event, TurnStarted)]

    until(lambda: prompts(), 30)
    assert "src/a.py:2-3\n>  two\n>  three\nsay why\n\nfile0.txt:1\n>  one\nother" in prompts()[-1]
    assert 3 == kasmon("comments", "one", "--send").code

    write(repo.folder / "src" / "a.py", "zero\none\ntwo\nthree\n")
    assert [3, 1] == [each["line_now"] for each in kasmon.json("comments", "one")["comments"]]
    write(repo.folder / "src" / "a.py", "one\n")
    assert ["resolved", "sent"] == [each["state"] for each in kasmon.json("comments", "one")["comments"]]


def test_a_comment_on_an_ended_session_is_written_and_deleted(kasmon: Cli) -> None:
    started(kasmon)
    assert 0 == kasmon("stop", "one").code

    name = kasmon.json("comment", "one", "file0.txt:1", "late")["comment"]["id"]
    assert f"{name}  open      file0.txt:1  late\n" == kasmon("comments", "one").out
    assert [] == kasmon.json("comments", "one", "--delete", name)["comments"]
    assert 3 == kasmon("comments", "one", "--delete", name).code


def test_a_comment_is_edited_resolved_reopened_and_removed(kasmon: Cli) -> None:
    started(kasmon)
    assert 0 == kasmon("stop", "one").code
    name, other = (kasmon.json("comment", "one", "file0.txt:1", text)["comment"]["id"] for text in ("late", "more"))

    def told(*words: str) -> list[tuple[str, str]]:
        return [(each["state"], each["text"]) for each in kasmon.json("comments", "one", *words)["comments"]]

    assert [("open", "later"), ("open", "more")] == told("edit", name, "later\x1b[31m")
    assert [("resolved", "later"), ("resolved", "more")] == told("resolve", name, other)
    assert [("resolved", "later"), ("open", "more")] == told("reopen", other)
    assert 3 == kasmon("comments", "one", "reopen", "nothing").code
    for words in (("edit", name), ("rm",), ("ls", name), ("rm", name, "--send"), ("edit", name, " ")):
        assert 2 == kasmon("comments", "one", *words).code
    assert [] == told("rm", name, other)


def test_a_comment_on_an_unknown_line_of_the_worktree_is_refused(kasmon: Cli) -> None:
    repo = started(kasmon)
    (repo.folder / "link").symlink_to("/etc/passwd")

    assert 2 == kasmon("comment", "one", "file0.txt", "x").code
    assert "has the lines 1 to 1, not 5 to 5" in kasmon("comment", "one", "file0.txt:5", "x").err
    for name in ("link:1", "../outside:1", "/etc/passwd:1", "gone:1"):
        assert "it is no text file in" in kasmon("comment", "one", name, "x").err
    assert "the comment is empty" in kasmon("comment", "one", "file0.txt:1", " ").err
