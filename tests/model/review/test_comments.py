"""Comments from the events that hold them: their state by the current lines, and the prompt that sends them."""

import msgspec

from kasmon.model.events import CommentMarked, CommentRemoved, CommentsSent, CommentWritten, ReviewComment
from kasmon.model.review.comments import build_prompt, fold_comments, place_in, resolved
from kasmon.model.review.hunks import parse
from tests.model.review.test_file_changes import of

FIRST = ReviewComment(id="c1", file="src/x.py", line=2, last_line=3, lines=("new line", "another"), text="why?")
OLD = ReviewComment(id="c2", file="src/x.py", line=10, last_line=10, side="old", lines=("gone",), text="keep it")
NOW = ("same", "new line", "another", "kept", "tail")


def written(*comments: ReviewComment) -> list[CommentWritten]:
    return [CommentWritten(at=float(number), comment=each) for number, each in enumerate(comments)]


def test_an_edit_replaces_a_comment_and_makes_it_unsent() -> None:
    edited = ReviewComment(id="c1", file="src/x.py", line=2, last_line=2, lines=("new line",), text="why not?")
    sent = CommentsSent(at=3.0, comments=("c1", "c2"), receipt="r1")

    assert ["open", "open"] == [each.state for each in fold_comments(written(FIRST, OLD))]
    assert ["sent", "sent"] == [each.state for each in fold_comments([*written(FIRST, OLD), sent])]
    again = fold_comments([*written(FIRST, OLD), sent, CommentWritten(at=4.0, comment=edited)])
    assert [("open", "why not?"), ("sent", "keep it")] == [(each.state, each.comment.text) for each in again]
    assert ["c2"] == [
        each.comment.id for each in fold_comments([*written(FIRST, OLD), CommentRemoved(at=5.0, comment="c1")])
    ]


def test_a_comment_is_resolved_once_its_lines_changed_and_not_when_they_moved() -> None:
    first, old = fold_comments(written(FIRST, OLD))

    assert ("open", 2) == (resolved(first, NOW).state, resolved(first, NOW).line_now)
    assert ("open", 4) == (resolved(first, ("x", "y", *NOW)).state, resolved(first, ("x", "y", *NOW)).line_now)
    assert "resolved" == resolved(first, ("same", "new line", "other")).state
    assert "resolved" == resolved(first, ()).state
    assert "open" == resolved(old, NOW).state
    assert "resolved" == resolved(old, (*NOW, "gone")).state


def test_the_user_resolves_a_comment_and_reopens_it_after_any_change_of_its_lines() -> None:
    def states(*later: CommentMarked | CommentsSent | CommentWritten) -> tuple[str, str]:
        """With the commented lines as they were, and without them."""
        (logged,) = fold_comments([*written(FIRST), *later])
        return resolved(logged, NOW).state, resolved(logged, ()).state

    sent = CommentsSent(at=2.0, comments=("c1",), receipt="r1")
    done, reopened = (CommentMarked(at=3.0, comment="c1", is_resolved=each) for each in (True, False))
    assert ("resolved", "resolved") == states(sent, done)
    assert ("open", "open") == states(sent, done, reopened)
    assert ("sent", "sent") == states(sent, reopened, sent)
    assert ("open", "open") == states(sent, reopened, *written(FIRST))
    assert ("open", "resolved") == states(sent, done, *written(FIRST))


def test_a_comment_is_below_its_last_line_in_the_diff() -> None:
    first, old = fold_comments(written(FIRST, OLD))
    file = parse(of("src/x.py").lines)

    assert 4 == place_in(resolved(first, NOW), file)
    assert 7 == place_in(old, file)


def test_the_prompt_has_file_line_hunk_and_text_of_each() -> None:
    first, old = fold_comments(written(FIRST, OLD))
    told = build_prompt([resolved(first, ("x", *NOW)), old])

    assert "src/x.py:3-4\n>  new line\n>  another\nwhy?" in told
    assert "src/x.py:10 (removed lines)\n> -gone\nkeep it" in told


def test_no_control_character_in_a_file_name_reaches_the_terminal() -> None:
    (logged,) = fold_comments(written(msgspec.structs.replace(FIRST, file="a\n\x1b[201~b")))

    assert "\n\nab:2-3\n" in build_prompt([logged]).replace("a b", "ab")
