"""Events of a session as updates of the protocol."""

from kasmon.acp.served_session import LiveChunks
from kasmon.acp.updates import UpdateTranslator, diff_contents, shorten
from kasmon.model.events import ToolStarted
from tests.support.sample_fleet import NOW, command


def texts(chunks: list[dict[str, object]]) -> list[object]:
    return [chunk["content"]["text"] for chunk in chunks]  # type: ignore[index]


def test_a_diff_of_several_files_has_one_content_for_each_hunk() -> None:
    diff = (
        "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n@@ -9,1 +9,2 @@\n d\n+e\n"
        "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,1 @@\n+f\n--- a/gone.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-g\n"
    )

    assert [
        {"type": "diff", "path": "/w/x.py", "oldText": "a\nc\n", "newText": "b\nc\n"},
        {"type": "diff", "path": "/w/x.py", "oldText": "d\n", "newText": "d\ne\n"},
        {"type": "diff", "path": "/w/new.py", "newText": "f\n"},
        {"type": "diff", "path": "/w/gone.py", "oldText": "g\n", "newText": ""},
    ] == diff_contents(diff, "/w")


def test_a_long_output_keeps_its_beginning_and_end_and_kinds_are_those_of_the_protocol() -> None:
    assert "ab\n[6 characters left out]\nyz" == shorten("ab123456yz", 4)

    tools = [ToolStarted(at=NOW, call="c", tool=tool) for tool in ("Bash", "Write", "Grep", "Read", "Ha")]
    kinds = [UpdateTranslator("/w").translate(started)[0]["kind"] for started in tools]
    assert ["execute", "edit", "search", "read", "other"] == kinds


def test_a_call_that_runs_already_shows_its_request() -> None:
    translator, asked = UpdateTranslator("/w"), command("api", "make")
    given = f'{{"command": "{asked.input["command"]}"}}'
    translator.translate(ToolStarted(at=NOW, call="c1", tool=asked.tool, input=given))

    assert ("c1", None) == translator.open_request(asked)


def test_text_is_sent_once_whether_it_streams_or_not() -> None:
    live = LiveChunks()
    assert live.write("Hel", thinking=False)
    assert ["Hel"] == texts(live.collect())
    assert ["lo"] == texts(live.finish("Hello", thinking=False))
    assert not live.write("Hello", thinking=False), "the host sent it late"
    assert ["again"] == texts(live.finish("again", thinking=False))
    assert live.write("Other", thinking=False)
    live.collect()
    assert ["\n\nA new text"] == texts(live.finish("A new text", thinking=False))
