"""All that an agent started has ended once its family is ended, also what is slow to end and what starts meanwhile."""

import os
import subprocess
import sys

import pytest

from kasmon import system
from kasmon.backends.common import process_family
from kasmon.backends.common.process_family import ProcessFamily
from kasmon.launch import RUN
from kasmon.process_identity import started_at

HANDS_OVER = """
import os, time
print("up", flush=True)
input()
if child := os.fork():
    print(child, flush=True)
    os._exit(0)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_family, "END_S", 40.0)


def test_a_process_of_its_group_without_its_mark_is_waited_for() -> None:
    """Like one that is killed: from some point on it shows no mark, but still has its folder and its files."""
    argv = ["/bin/sh", "-c", "env -i sleep 1 & echo $!"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        left = int(leader.stdout.readline())
        leader.wait()

        ProcessFamily(leader.pid, "the mark").end()

        assert started_at(left) is None


def test_a_process_whose_parent_ends_while_the_list_is_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [sys.executable, "-c", HANDS_OVER]
    pipe, variables = subprocess.PIPE, {RUN: "the mark"}
    children: list[int] = []
    read_pids = system.HERE.list_pids
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, start_new_session=True, env=variables) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()

        def hand_over() -> list[int]:
            """The first list is from before the parent started its child and ended."""
            pids = read_pids()
            if not children:
                assert parent.stdin is not None
                assert parent.stdout is not None
                parent.stdin.write(b"\n")
                parent.stdin.flush()
                children.append(int(parent.stdout.readline()))
                parent.wait()
            return pids

        monkeypatch.setattr(system.HERE, "list_pids", hand_over)
        ProcessFamily(os.getpid(), "the mark").end()

        assert [None] == [started_at(child) for child in children]
