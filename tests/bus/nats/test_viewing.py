"""A viewer's kasmon with a machine of a cluster, then an operator's: real commands, a real link and a real server."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.bus.nats.identity import IdentityFile
from kasmon.errors import RefusedError
from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.link_client import run
from kasmon.supervisor.machines.marks import read_marks
from kasmon.supervisor.machines.registration import start_link
from kasmon.supervisor.sessions import session_operations
from tests.support.bus.cluster_server import CLUSTER, ClusterServer
from tests.support.bus.joined import NAME, JoinedKasmons
from tests.support.git_repo import Repo
from tests.support.wait import until

pytestmark = pytest.mark.story


def kasmon(where: Paths, *words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, **where.environment_variables(), "NO_COLOR": "1"}
    argv = [sys.executable, "-P", "-m", "kasmon", *words]
    return subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def output(where: Paths, *words: str) -> str:
    process = kasmon(where, *words)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    return text


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterServer]:
    server = ClusterServer(
        tmp_path, members=((NAME, "machine", "main"), ("vera", "viewer", "main"), ("otto", "operator", "main"))
    )
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def joined(cluster: ClusterServer) -> Iterator[JoinedKasmons]:
    """`near` is a viewer's, `far` publishes to the cluster."""
    joined = JoinedKasmons()
    IdentityFile(joined.far.paths, CLUSTER, "machine").save(cluster.identity(NAME, "machine"))
    IdentityFile(joined.near.paths, CLUSTER, "viewer").save(cluster.identity("vera", "viewer"))
    serving = kasmon(joined.far.paths, "bus", "--cluster", CLUSTER, "--allow", "see,prompt,answer")
    try:
        yield joined
    finally:
        joined.close()
        serving.terminate()
        serving.communicate()


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> None:
    """This test looks at files from its loop; the product's loops are in other processes."""


async def test_a_viewer_sees_all_sessions_and_cannot_answer_and_an_operator_can(
    cluster: ClusterServer, joined: JoinedKasmons
) -> None:
    near = joined.near.paths
    session = await joined.begin()
    await session_operations.send(joined.far.paths, _session(joined, session), "ask git push")

    added = json.loads(await asyncio.to_thread(output, near, "machines", "add", NAME, "--cluster", CLUSTER, "--json"))
    asking = joined.shown(session, lambda seen: seen.requests)

    assert "connected" == added["machine"]["state"]
    assert until(lambda: joined.has_whole_log(session))
    assert "git push" in await asyncio.to_thread(output, near, "show", session)
    assert "git push" in await asyncio.to_thread(output, near, "grep", "git push")
    answer = Answer(request=asking.requests[0].id, digest=asking.requests[0].digest, decision=Decision.ALLOW)
    with pytest.raises(RefusedError, match="as a viewer: only operators answer"):
        await session_operations.execute(near, asking, answer)
    assert joined.shown(session).requests, "it is asked still"

    IdentityFile(near, CLUSTER, "operator").save(cluster.identity("otto", "operator"))
    os.kill(joined.link_pid, signal.SIGTERM)
    until(lambda: not joined.link_pid, what="the end of the viewer's link")
    start_link(near, NAME)
    joined.until_connected()
    await session_operations.execute(near, asking, answer)
    joined.shown(session, lambda seen: not seen.requests)

    await asyncio.to_thread(cluster.stop)
    until(lambda: joined.presence.why, what="the loss of the server")
    assert "lost" in joined.presence.why or "reach" in joined.presence.why
    assert joined.shown(session).is_unreachable
    assert "git push" in await asyncio.to_thread(output, joined.far.paths, "show", session), "the machine goes on"


async def test_a_viewer_sees_the_marks_of_sessions_and_has_no_other_command_run(
    joined: JoinedKasmons, tmp_path: Path
) -> None:
    near, repo = joined.near.paths, Repo(tmp_path / "shop")
    session = await joined.begin("fix", workdir=str(repo.folder), worktree=True)
    tree = _session(joined, session).worktree
    assert tree is not None
    await asyncio.to_thread(repo.commit, "new.txt", "one\n", at=Path(tree.path))
    await asyncio.to_thread(output, near, "machines", "add", NAME, "--cluster", CLUSTER)
    joined.shown(session)

    [mark] = await asyncio.to_thread(read_marks, near, NAME)

    assert (session, 1) == (mark.id, mark.branch.ahead if mark.branch else None)
    for words in (("ls", "--json"), ("ls", "--json", "--marks", "--tmux")):
        with pytest.raises(RefusedError, match="as a viewer: only operators"):
            await asyncio.to_thread(run, near, NAME, words)


def _session(joined: JoinedKasmons, session: SessionId) -> Session:
    return until(lambda: read_fleet(joined.far.paths).get(session), what="the session there")
