"""What Claude Code lists of its background sessions, and which one a word means."""

import json
from typing import Any

import pytest

from kasmon.errors import NotFoundError, UsageError
from kasmon.model.adoption.background_session import BackgroundSession, find_background, parse_list

LISTED: dict[str, Any] = {
    "id": "86f99758",
    "kind": "background",
    "name": "fix the build",
    "cwd": "/work",
    "state": "blocked",
    "status": "waiting",
    "waitingFor": "permission prompt",
    "sessionId": "86f99758-1111-4222-8333-0123456789ab",
    "pid": 41,
    "startedAt": 1_790_000_000_000,
    "group": "new in a later version",
}


def test_each_background_session_is_read_and_those_of_terminals_are_not() -> None:
    found = parse_list(json.dumps([LISTED, {**LISTED, "id": "", "kind": "interactive"}]).encode())

    expected = BackgroundSession(
        id="86f99758",
        name="fix the build",
        workdir="/work",
        state="blocked",
        status="waiting",
        waiting_for="permission prompt",
        conversation="86f99758-1111-4222-8333-0123456789ab",
        pid=41,
        started_at=1_790_000_000.0,
    )
    assert (expected,) == found
    assert "needs input" == found[0].activity


def test_a_finished_one_has_no_process() -> None:
    (found,) = parse_list(json.dumps([{"id": "86f99758", "kind": "background", "state": "done", "pid": None}]).encode())

    assert (None, "done", "86f99758") == (found.pid, found.activity, found.label)


@pytest.mark.parametrize(
    ("state", "status", "activity"),
    [
        ("working", "idle", "idle"),
        ("working", "busy", "working"),
        ("blocked", "", "needs input"),
        ("failed", "", "failed"),
    ],
)
def test_the_status_of_its_process_is_its_state(state: str, status: str, activity: str) -> None:
    assert activity == BackgroundSession(id="a", state=state, status=status).activity


@pytest.mark.parametrize("output", [b"", b"no list", b'{"id": 1}', b'["x"]', b"\xff", b"[" * 100_000])
def test_other_output_is_not_parsed(output: bytes) -> None:
    with pytest.raises(ValueError, match="no list of sessions"):
        parse_list(output)


@pytest.mark.parametrize("id_", ["--help", "", "a b", "x" * 65, "../x", "a;b"])
def test_an_id_that_could_be_more_than_an_id_is_left_out(id_: str) -> None:
    assert () == parse_list(json.dumps([{**LISTED, "id": id_}]).encode())


def test_its_texts_are_cleaned_and_an_id_a_conversation_or_a_name_selects_one() -> None:
    (found,) = parse_list(json.dumps([{**LISTED, "name": "\x1b[31mred", "state": ["odd"]}]).encode())
    assert "\x1b" not in found.name
    assert "" == found.state

    one = BackgroundSession(id="86f99758", name="build", conversation="86f99758-1")
    two, three = (BackgroundSession(id=name, name="twin") for name in ("22222222", "33333333"))
    for target in ("86f99758", "86f99758-1", "build"):
        assert one == find_background(target, (one, two, three))
    with pytest.raises(UsageError, match="matches 2 background sessions"):
        find_background("twin", (one, two, three))
    with pytest.raises(NotFoundError, match="no background session 'none'"):
        find_background("none", (one, two, three))
