"""`kasmon agents ls --known`: what the registry of the Agent Client Protocol offers, and nothing harmful of it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kasmon.agents import acp_registry
from kasmon.errors import ConfigError
from tests.support.cli.cli_runner import Cli


def content(**changes: Any) -> dict[str, Any]:
    """A registry with one agent."""
    start = {"npx": {"package": "@birds/parrot@1.2.3", "args": ["--acp"]}}
    return {
        "version": "1.0.0",
        "agents": [{"id": "parrot", "name": "Parrot", "version": "1.2.3", "distribution": start} | changes],
    }


@contextmanager
def served(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """Serve *body* on loopback, and a registry at `/other`; yield its address."""
    answers: dict[str, tuple[int, bytes, dict[str, str]]] = {"/other": (200, json.dumps(content()).encode(), {})}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text, fields = answers.get(self.path, (status, body, headers))
            self.send_response(code)
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/registry.json"
        finally:
            server.shutdown()


def test_the_snapshot_names_the_agents_that_kasmon_has_a_profile_for(kasmon: Cli) -> None:
    known = {each["id"]: each for each in kasmon.json("agents", "ls", "--known")["known"]}

    wanted = {"gemini": "gemini", "github-copilot-cli": "copilot", "qwen-code": "qwen", "factory-droid": "droid"}
    assert wanted == {name: known[name]["profile"] for name in wanted}
    assert ["goose", "acp"] == known["goose"]["start"]
    assert None is known["junie"]["profile"]
    assert "npx --yes cline@" in kasmon("agents", "ls", "--known").out
    assert not kasmon.paths.acp_registry.exists()


def test_an_update_is_stored_and_listed(kasmon: Cli) -> None:
    with served(200, json.dumps(content() | {"extensions": []}).encode()) as url:
        done = kasmon("agents", "update", url)

    assert 0 == done.code, done.err
    (known,) = kasmon.json("agents", "ls", "--known")["known"]
    assert ("parrot", ["npx", "--yes", "@birds/parrot@1.2.3", "--acp"]) == (known["id"], known["start"])


def test_an_update_from_a_file_is_stored(kasmon: Cli) -> None:
    file = kasmon.home / "registry.json"
    file.write_text(json.dumps(content()))

    assert 1 == kasmon.json("agents", "update", str(file))["agents"]


ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "a redirect": (302, b"", {"Location": "/other"}),
    "a refusal": (404, b"", {}),
    "too much": (200, json.dumps(content()).encode() + b" " * acp_registry.LARGEST, {}),
    "no text": (200, b"\xff\xfe", {}),
    "no registry": (200, b"<html></html>", {}),
    "no agents": (200, b'{"agents": 1}', {}),
    "a deep value": (200, b'{"x": ' + b"[" * 100_000, {}),
}


@pytest.mark.parametrize(("status", "body", "headers"), ANSWERS.values(), ids=ANSWERS)
def test_an_invalid_registry_changes_nothing(kasmon: Cli, status: int, body: bytes, headers: dict[str, str]) -> None:
    with served(status, body, **headers) as url:
        done = kasmon("agents", "update", url)

    assert done.code
    assert url in done.err
    assert not kasmon.paths.acp_registry.exists()


def test_an_address_without_tls_is_refused(kasmon: Cli) -> None:
    done = kasmon("agents", "update", "http://example.invalid/registry.json")

    assert (2, True) == (done.code, "is not an https address" in done.err)


SPOILT: dict[str, dict[str, Any]] = {
    "a path as id": {"id": "../parrot"},
    "an escape in the name": {"name": "a\x1b]0;x\x07"},
    "a long name": {"name": "a" * 61},
    "a flag as package": {"distribution": {"npx": {"package": "--registry=http://x"}}},
    "a command as package": {"distribution": {"npx": {"package": "a; rm"}}},
    "an address as version": {"version": "http://x"},
    "a flag as program": {"distribution": {"binary": {"linux-x86_64": {"cmd": "-c"}}}},
    "a line break in an argument": {"distribution": {"uvx": {"package": "a", "args": ["a\nb"]}}},
    "many arguments": {"distribution": {"uvx": {"package": "a", "args": ["a"] * 41}}},
}


@pytest.mark.parametrize("changes", SPOILT.values(), ids=SPOILT)
def test_a_registry_with_an_invalid_agent_is_refused_whole(changes: dict[str, Any]) -> None:
    assert acp_registry.parse(json.dumps(content()), "it")

    with pytest.raises(ConfigError):
        acp_registry.parse(json.dumps(content(**changes)), "it")


def test_a_registry_of_more_than_a_thousand_agents_is_refused() -> None:
    with pytest.raises(ConfigError):
        acp_registry.parse(json.dumps({"agents": content()["agents"] * 1001}), "it")


STARTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a program of a package of npm": (
        {"npx": {"package": "@b/p", "cmd": "parrot", "args": ["acp"]}},
        ["npx", "--yes", "--package", "@b/p", "parrot", "acp"],
    ),
    "a package of PyPI": ({"uvx": {"package": "parrot"}}, ["uvx", "parrot"]),
    "an archive": ({"binary": {"windows-x86_64": {"cmd": "./bin\\parrot.exe"}}}, ["parrot"]),
    "something new": ({"docker": {"image": "x"}}, []),
}


@pytest.mark.parametrize(("distribution", "start"), STARTS.values(), ids=STARTS)
def test_each_distribution_has_its_command(distribution: dict[str, Any], start: list[str]) -> None:
    (agent,) = acp_registry.parse(json.dumps(content(distribution=distribution)), "it")

    assert start == [*agent.start]
