"""Commands that only read leave nothing behind, whatever the environment gives; those that write work all the same."""

import shutil
from pathlib import Path

import pytest

from kasmon.paths import user_paths
from tests.support.cli.cli_runner import Cli
from tests.support.wait import until

pytestmark = pytest.mark.story

READING = [
    "--help",
    "ls",
    "ls --json",
    "show x",
    "read x",
    "inbox",
    "wait x --for idle",
    "send x hello",
    "answer x-1 allow --digest 0",
    "stop x",
    "attach x",
    "config",
    "config --explain ui.theme",
    "doctor",
    "doctor --report",
    "completion bash",
    "new x --agent no-such-agent",
]


def traces(kasmon: Cli) -> list[str]:
    return sorted(str(path.relative_to(kasmon.home)) for path in kasmon.home.rglob("*"))


@pytest.mark.parametrize("runtime", ["", "/no/such/folder"], ids=["no runtime folder", "an unusable one"])
def test_reading_leaves_no_trace(kasmon: Cli, runtime: str) -> None:
    for words in READING:
        done = kasmon(*words.split(), XDG_RUNTIME_DIR=runtime, TMPDIR=str(kasmon.home))
        assert done.code in (0, 3), done.err
        assert ["c", "r", "s"] == traces(kasmon), words


def test_watching_leaves_no_trace(kasmon: Cli) -> None:
    code, said = kasmon.terminal(
        "ls", "--watch", typed=[("No sessions", "\x03")], XDG_RUNTIME_DIR="", TMPDIR=str(kasmon.home)
    )

    assert (130, True) == (code, "No sessions yet" in said)
    assert ["c", "r", "s"] == traces(kasmon)


def test_without_a_usable_runtime_folder_everything_works_and_the_doctor_names_the_fallback(kasmon: Cli) -> None:
    kasmon.environment |= {"XDG_RUNTIME_DIR": "/no/such/folder", "TMPDIR": str(kasmon.home)}
    session = kasmon.new("fix-auth", "say hello")
    runtime = user_paths(kasmon.environment).runtime

    assert [session] == [
        one["id"] for one in kasmon.json("wait", session, "--for", "idle", "--timeout", "20")["sessions"]
    ]
    assert kasmon.home == runtime.parents[1]
    assert (runtime / f"{session}.sock").is_socket()
    [told] = [check for check in kasmon.json("doctor")["checks"] if check["id"] == "folder-runtime"]
    assert ("warn", True) == (told["level"], "'/no/such/folder' is not a folder" in told["text"])
    assert str(runtime) in told["text"]
    assert "ended" == kasmon.json("stop", session)["session"]["state"]
    until(lambda: not Path(runtime, f"{session}.sock").exists())
    shutil.rmtree(runtime.parent)
    assert "ended" == kasmon.json("ls")["sessions"][0]["state"]
    assert "idle" == kasmon.json("wait", kasmon.new("next"), "--for", "idle", "--timeout", "20")["sessions"][0]["state"]
