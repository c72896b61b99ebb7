"""A session written out: whole, without secrets, and nothing foreign in it is more than text."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kasmon.errors import KasmonError, RefusedError, UsageError
from kasmon.model.commands import Mode
from kasmon.model.events import MessageWritten, SessionRenamed, ToolFinished, ToolStarted, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.transcript.export import fenced, inline
from kasmon.paths import Paths
from kasmon.store.event_log import EventLog
from kasmon.supervisor.search.search import list_sessions
from kasmon.supervisor.sessions.export import as_html, as_markdown, as_objects, write, write_beside
from tests.supervisor.search.test_search import OLD, begun, here, printed, said, say

__all__ = ["here"]

HOSTILE = "```\n# a heading\n````\n<img src=https://a.example/x>\n[link](https://a.example)\n~~~\x1b[31m\n``` ```"


def only(here: Paths) -> Session:
    [session] = list_sessions(here)
    return session


def outside(markdown: str) -> list[str]:
    """The lines of *markdown* that stand in no fence, as CommonMark has it; the fences left out."""
    lines: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        if fence:
            if re.fullmatch(rf"{fence}`*\s*", line):
                fence = ""
        elif (begins := re.match("(`{3,})[^`]*$", line)) is not None:
            fence = begins[1]
        else:
            lines.append(line)
    assert not fence
    return lines


def test_all_messages_and_outputs_are_exported_in_order(here: Paths) -> None:
    session = begun(here, "one", TurnStarted(at=OLD, prompt="mend it"), said("done", OLD + 60), mode=Mode.TMUX)
    printed(here, session, "$ make", shown=("ok",)).append(["later"], OLD, gap=True)
    text = as_markdown(here, only(here))
    paths = [text.index(words) for words in ("# `one`", "## Prompt", "mend it", "## Answer", "done", "$ make", "later")]

    assert paths == sorted(paths)
    assert "some output was missed here)\nlater\nok\n" in text


def test_no_foreign_text_leaves_its_fence(here: Paths) -> None:
    begun(here, "one", said(HOSTILE), TurnStarted(at=OLD, prompt=HOSTILE), ToolFinished(at=OLD, call="c", diff=HOSTILE))
    text = as_markdown(here, only(here))

    assert 3 == text.count("# a heading")
    assert ["# `one`", "## Answer", "## Prompt", "## Change"] == [
        line.split(",")[0] for line in outside(text) if line.startswith("#")
    ]
    assert not re.search(r"img|\[link|\x1b|~~~", "\n".join(outside(text)))


@pytest.mark.parametrize("text", ["", "`", "a`b", "```", "`` x `", "a\nb\x1b[1m"])
def test_a_span_of_code_and_a_fence_hold_any_text(text: str) -> None:
    ticks = re.match("`+", inline(text))

    assert ticks is not None
    assert f"{ticks[0]}" not in inline(text)[len(ticks[0]) : -len(ticks[0])].replace("``" * len(ticks[0]), "")
    assert "\n" not in inline(text)
    assert [""] == outside(fenced(text))
    assert "\x1b" not in fenced(text)


def test_an_event_at_an_impossible_time_is_exported_too(here: Paths) -> None:
    begun(here, "one", TurnStarted(at=1e18, prompt="mend it"))

    assert "## Prompt, --:--:--\n" in as_markdown(here, only(here))


def test_texts_too_long_for_the_log_are_whole_and_a_missing_one_is_marked(here: Paths) -> None:
    long = "\n".join(f"row {number} of the output" for number in range(20_000))
    session = begun(here, "one", ToolFinished(at=OLD, call="c", output=long))
    assert "row 19999 of the output" in as_markdown(here, only(here))
    for blob in here.blobs(session).iterdir():
        blob.unlink()
    text = as_markdown(here, only(here))

    assert "row 1 of the output" in text
    assert "the rest no longer exists" in text
    assert "row 19999" not in text


def test_no_secret_of_the_session_is_in_the_export(here: Paths) -> None:
    session = begun(here, "one", said('the key "hunter2hunter2"'))
    printed(here, session, "hunter2hunter2")
    here.environment(session).write_bytes(b"API_KEY=hunter2hunter2")
    everything = as_objects(here, only(here))

    assert "hunter2" not in as_markdown(here, only(here)) + str(everything)
    assert [("message.said", 'the key "⟨hidden: 14 characters⟩"')] == [
        (event["kind"], event["text"]) for event in everything["events"]
    ]
    assert [{"n": 0, "at": OLD, "line": "⟨hidden: 14 characters⟩"}] == everything["terminal"]


def test_a_turn_is_exported_by_its_number_from_either_end(here: Paths) -> None:
    turns = [TurnStarted(at=OLD, prompt=f"prompt {number}") for number in (1, 2, 3)]
    begun(here, "one", turns[0], said("answer 1"), turns[1], said("answer 2"), turns[2], said("answer 3"))
    session = only(here)

    for turn in (2, -2):
        assert ["prompt 2", "answer 2"] == re.findall(r"(?:prompt|answer) \d", as_markdown(here, session, turn))
        assert ["prompt 2", "answer 2"] == re.findall(r"(?:prompt|answer) \d", as_html(here, session, turn))
    with pytest.raises(UsageError, match="has no turn 4"):
        as_markdown(here, session, 4)


class Page(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


FOREIGN = "<script>alert(1)</script><img src=x onerror=y> [a](javascript:b) ![c](http://d.example) &#x1b;[31m \x1b[2J"


def test_a_shared_page_has_only_text_and_its_own_style(here: Paths) -> None:
    begun(
        here,
        "one",
        TurnStarted(at=OLD, prompt=FOREIGN),
        said(f"{FOREIGN}\n```html\n{FOREIGN}\n```\n\n|{FOREIGN}|b|\n|-|-|\n"),
        ToolStarted(at=OLD, call="c", tool=FOREIGN, title=FOREIGN, input=FOREIGN),
        ToolFinished(at=OLD, call="c", output=f"{FOREIGN}\n" * 40, diff=f"+{FOREIGN}"),
    )
    EventLog(here.fleet_log).append(SessionRenamed(at=OLD, session=SessionId("sone"), name=f"</title>{FOREIGN}"))
    text = as_html(here, only(here))
    page = Page(text)

    allowed = {"html", "head", "meta", "title", "style", "body", "h1", "p", "pre", "details", "summary"}
    assert {tag for tag, _ in page.elements} <= allowed | {"span", "b", "i", "s"}
    assert {name for _, names in page.elements for name in names} <= {
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
    }
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    assert page.text.count("<script>alert(1)</script>") > 40


def test_a_shared_page_has_no_secret_of_the_session(here: Paths) -> None:
    session = begun(here, "one", said('the key "hunter2 & hunter3", and\nsk-ant-0123456789abcdef0123456789abcdef'))
    here.environment(session).write_bytes(b"API_KEY=hunter2 & hunter3")
    text = as_html(here, only(here))

    assert not re.search("hunter|0123456789abcdef", text)
    assert "⟨hidden: 17 characters⟩" in text


def test_an_existing_file_is_never_overwritten(here: Paths, tmp_path: Path) -> None:
    begun(here, "one")
    EventLog(here.fleet_log).append(SessionRenamed(at=OLD, session=SessionId("sone"), name="../we ird\n"))
    first = write_beside(tmp_path, only(here), "one")
    second = write_beside(tmp_path, only(here), "two")

    assert ["kasmon-we-ird-sone.md", "kasmon-we-ird-sone-2.md"] == [first.name, second.name]
    assert [tmp_path, tmp_path] == [first.parent, second.parent]
    assert ["one", "two"] == [first.read_text(), second.read_text()]
    assert 0o600 == first.stat().st_mode & 0o777
    with pytest.raises(RefusedError, match="already exists"):
        write(first, "three")
    with pytest.raises(KasmonError, match="cannot be written"):
        write(tmp_path / "no" / "folder", "x")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="already exists"):
        write(tmp_path / "link", "x")
    assert not (tmp_path / "elsewhere").exists()
    assert "one" == first.read_text()


def test_a_session_without_messages_is_exported_with_its_header(here: Paths) -> None:
    begun(here, "one")
    say(here, only(here).id, MessageWritten(at=OLD, text=""))

    assert as_markdown(here, only(here)).startswith("# `one`\n\n- session: `sone`\n")
