"""`kasmon agents conversations` lists what an agent stores; `kasmon new --resume` opens one of them."""

import json
import os
import sys

from tests.support.acp.odd_session import ODD
from tests.support.cli.cli_runner import Cli


def has_odd_agents(kasmon: Cli) -> None:
    folder = kasmon.home / "c" / "kasmon"
    folder.mkdir(mode=0o700, exist_ok=True)
    text = ""
    for profile, name in (("odd", "lists"), ("new", "lists_none")):
        acp = json.dumps(["-P", str(ODD), name])
        text += f"[agents.{profile}]\nprogram = {json.dumps(sys.executable)}\nacp = {acp}\n"
    (folder / "config.toml").write_text(text)


def test_a_stored_conversation_is_found_and_resumed(kasmon: Cli) -> None:
    has_odd_agents(kasmon)
    listed = kasmon.json("agents", "conversations", "odd")
    assert ("odd", True) == (listed["agent"], listed["is_whole"])
    assert {"id", "folder", "title", "used_at", "session"} == set(listed["conversations"][0])
    assert ["talk-1", "talk-2"] == [each["id"] for each in listed["conversations"]]
    done = kasmon("new", "docs", "--agent", "odd", "--mode", "sdk", "--resume", "talk-1")
    assert 0 == done.code, done.err
    assert "talk-1" == kasmon.json("show", "docs")["session"]["resume_id"]

    lines = kasmon("agents", "conversations", "odd", "--all").out.splitlines()
    assert ["ID", "LAST", "USED", "SESSION", "FOLDER", "TITLE"] == lines[0].split()
    words = lines[1].split()
    assert ["talk-1", "docs", os.path.realpath(kasmon.home), "tidy"] == [words[each] for each in (0, 3, 4, 5)]
    assert lines[3].endswith("title of two lines")
    assert "new stores no conversation of this folder.\n" == kasmon("agents", "conversations", "new").out


def test_several_sessions_cannot_share_one(kasmon: Cli) -> None:
    has_odd_agents(kasmon)
    done = kasmon("new", "docs", "--agent", "odd", "--resume", "talk-1", "--count", "2")

    assert 2 == done.code
    assert "--resume opens one conversation in one session." in done.err
