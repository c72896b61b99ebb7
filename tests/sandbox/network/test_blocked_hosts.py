"""A host that a jail was refused reaches the inbox as a request, and an answer changes what the jail may reach."""

import asyncio
import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from kasmon.errors import RefusedError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import ExecuteCommand
from kasmon.host.sandboxed.egress_requests import ONCE_S, EgressRequests
from kasmon.model.commands import Answer
from kasmon.model.events import RequestAnswered
from kasmon.model.permission import Decision, Request, SessionId
from kasmon.model.session_state import SessionState
from kasmon.sandbox.tiers import policy_of
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.sandbox import sandboxed_agents
from tests.support.sandbox.sandboxed_agents import LIMIT_S, configured, facts, session_of, shows
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes
CURL = "curl -sS --max-time 10 http://localhost:{port}/"


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello-from-outside")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as built:
        threading.Thread(target=built.serve_forever, daemon=True).start()
        yield built.server_address[1]
        built.shutdown()


@pytest.fixture
def kasmon(can_jail: None, fork_server: ForkServer) -> Iterator[Cli]:
    yield from sandboxed_agents.lined(can_jail, fork_server)


@pytest.fixture
def lab(kasmon: Cli) -> SessionId:
    """A sandbox of interpreters that may reach one port of this machine's `localhost`, where nothing listens."""
    done = kasmon("sandbox", "create", "lab", "--allow", "private:localhost:9")
    assert 0 == done.code, done.err
    return SessionId(done.out.split()[0])


def run(kasmon: Cli, code: str) -> str:
    done = kasmon("sandbox", "run", "lab", code)
    return done.out + done.err


def asked(kasmon: Cli, session: SessionId) -> Request:
    [request] = until(lambda: session_of(kasmon, session).requests, LIMIT_S, "a request")
    assert isinstance(request, Request)
    return request


def answer(kasmon: Cli, request: Request, decision: str) -> None:
    done = kasmon("answer", request.id, decision, "--digest", request.digest)
    assert 0 == done.code, done.err


def test_a_denial_names_the_exact_command_and_once_allows_it_without_storing_it(
    kasmon: Cli, lab: SessionId, server: int
) -> None:
    said = run(kasmon, CURL.format(port=server))
    request = asked(kasmon, lab)
    entry = f"private:localhost:{server}"

    assert f"kasmon sandbox allow {lab} {entry}" in said
    assert (entry, True) == (request.input["entry"], entry in request.shown)
    assert {Decision.ALLOW, Decision.ALWAYS, Decision.DENY} == set(request.choices)
    assert 0 != kasmon("answer", request.id, "allow", "--digest", "0" * 64).code
    assert "hello-from-outside" not in run(kasmon, CURL.format(port=server))
    answer(kasmon, request, "allow")
    assert "hello-from-outside" in run(kasmon, CURL.format(port=server))
    assert entry not in policy_of(kasmon.paths, lab).hosts


def test_a_sandbox_made_without_hosts_asks_too(kasmon: Cli, server: int) -> None:
    """Its proxy starts at the first connection."""
    session = SessionId(kasmon("sandbox", "create", "lab").out.split()[0])

    assert "Could not resolve host" in run(kasmon, "curl -sS --noproxy '*' http://example.org/")
    assert f"kasmon sandbox allow {session} example.org" in run(kasmon, "curl -sS http://example.org/")
    answer(kasmon, asked(kasmon, session), "deny")
    assert 0 == kasmon("sandbox", "allow", "lab", f"private:localhost:{server}").code
    assert "hello-from-outside" in run(kasmon, CURL.format(port=server))


def test_the_answer_opens_a_sandbox_made_without_hosts(kasmon: Cli) -> None:
    session = SessionId(kasmon("sandbox", "create", "lab").out.split()[0])
    run(kasmon, "curl -sS http://other.example:1/")
    request = asked(kasmon, session)
    assert "other.example:1" == request.input["entry"]
    answer(kasmon, request, "always")

    assert "is not on the list" not in run(kasmon, "curl -sS http://other.example:1/")
    assert ("other.example:1",) == policy_of(kasmon.paths, session).hosts


RUNS = {
    "bash": "curl -sS --max-time 10 {url}",
    "python": "import urllib.request; print(urllib.request.urlopen('{url}', timeout=10).read().decode())",
    "node": "console.log(await (await fetch('{url}')).text())",
}


def test_an_interpreter_that_runs_already_reaches_a_port_of_localhost_once_it_is_allowed(
    kasmon: Cli, server: int
) -> None:
    """Until then `localhost` is the sandbox itself, also for a node that has sent requests."""
    kasmon("sandbox", "create", "lab", "--allow", "pypi")
    runs = {lang: code.format(url=f"http://localhost:{server}/") for lang, code in RUNS.items() if shutil.which(lang)}

    def outcomes() -> dict[str, bool]:
        done = {lang: kasmon("sandbox", "run", "lab", "--lang", lang, code) for lang, code in runs.items()}
        return {lang: "hello-from-outside" in each.out for lang, each in done.items()}

    assert dict.fromkeys(runs, False) == outcomes()
    assert 0 == kasmon("sandbox", "allow", "lab", f"private:localhost:{server}").code
    assert dict.fromkeys(runs, True) == outcomes()


def test_a_host_allowed_once_is_refused_again_when_its_time_is_over(kasmon: Cli, lab: SessionId, server: int) -> None:
    """By the clock that it is given; what the jail is refused meanwhile is not asked about."""
    clock, nobody = [1000.0], cast("Any", None)
    requests = EgressRequests(kasmon.paths, lab, nobody, nobody, now=lambda: clock[0])
    requests._refusals = lambda since: []  # type: ignore[method-assign]  # no log to ask in

    asyncio.run(requests._execute(Decision.ALLOW, f"private:localhost:{server}"))
    clock[0] += ONCE_S - 1
    asyncio.run(requests._check())
    assert "hello-from-outside" in run(kasmon, CURL.format(port=server))

    clock[0] += 1
    asyncio.run(requests._check())
    assert "hello-from-outside" not in run(kasmon, CURL.format(port=server))


def test_always_is_stored_for_this_sandbox(kasmon: Cli, lab: SessionId, server: int) -> None:
    run(kasmon, CURL.format(port=server))
    answer(kasmon, asked(kasmon, lab), "always")

    assert "hello-from-outside" in run(kasmon, CURL.format(port=server))
    assert f"private:localhost:{server}" in policy_of(kasmon.paths, lab).hosts
    assert [] == json.loads(kasmon("rules", "--json").out)["rules"]


def test_a_denied_host_is_not_requested_again(kasmon: Cli, lab: SessionId, server: int) -> None:
    run(kasmon, CURL.format(port=server))
    answer(kasmon, asked(kasmon, lab), "deny")
    run(kasmon, CURL.format(port=server))
    run(kasmon, "curl -sS http://other.example:1/")

    assert "other.example:1" == asked(kasmon, lab).input["entry"]
    assert [Decision.DENY] == [each.decision for each in facts(kasmon, lab, RequestAnswered)]


def test_an_agent_cannot_answer_it(kasmon: Cli, lab: SessionId, server: int) -> None:
    """The guard is that of every other request."""
    run(kasmon, CURL.format(port=server))
    request = asked(kasmon, lab)

    async def tried() -> None:
        wish = Answer(request=request.id, digest=request.digest, decision=Decision.ALLOW)
        async with contextlib.aclosing(await HostLink.open(kasmon.paths.socket(lab), as_agent=True)) as link:
            await link.ask(ExecuteCommand(n=0, session=lab, command=wish), LIMIT_S)

    with pytest.raises(RefusedError):
        asyncio.run(tried())
    assert [request.id] == [each.id for each in session_of(kasmon, lab).requests]


def test_hosts_that_a_profile_denies_silently_are_not_requested_but_those_of_common_services(
    kasmon: Cli, shared: Path
) -> None:
    lines = 'network = ["private:localhost:9"]\nrefuse = ["telemetry.example", "registry.npmjs.org:443"]'
    configured(kasmon, f"[agents.shell.confined]\n{lines}\n")
    session = sandboxed_agents.started(kasmon, sandboxed_agents.folder(shared))
    sandboxed_agents.seen(kasmon, session)
    calls = [f"curl -sS http://{host}/" for host in ("telemetry.example", "registry.npmjs.org:443")]
    assert 0 == kasmon("send", session, "; ".join(["read word", *calls, "cat"])).code
    sandboxed_agents.until_state(kasmon, session, SessionState.WORKING)  # as long as nobody ends `cat`
    assert 0 == kasmon("send", session, "go", "--when", "now").code

    assert "registry.npmjs.org" == asked(kasmon, session).input["entry"]
    assert (
        "Refused without a request: telemetry.example, registry.npmjs.org:443" in kasmon("sandbox", "show", session).out
    )


def test_a_jailed_agent_in_a_terminal_asks_too(kasmon: Cli, shared: Path, server: int) -> None:
    configured(kasmon, '[agents.shell.confined]\nnetwork = ["private:localhost:9"]\n')
    session = sandboxed_agents.started(kasmon, sandboxed_agents.folder(shared))
    sandboxed_agents.seen(kasmon, session)
    assert 0 == kasmon("send", session, CURL.format(port=server)).code
    answer(kasmon, asked(kasmon, session), "allow")
    kasmon("send", session, CURL.format(port=server))

    shows(kasmon, session, "hello-from-outside")
