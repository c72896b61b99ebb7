"""A machine fetches commits from the remote of a plan's repository with credentials of its own; nothing is pushed."""

import base64
import contextlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from kasmon.supervisor.plans.machines.registered_tasks import _address_of_remote
from tests.support.git_repo import Repo
from tests.support.supervisor.machine_plan import MachinePlan

pytestmark = pytest.mark.story

PASSWORD: Final = "hunter2"
PLAN: Final = """
fetch = "remote"
[[task]]
id = "lexer"
machine = "gpu-1"
run = "echo x > x.txt && git add x.txt && git -c user.name=t -c user.email=t@t commit -qm x"
"""
CREDENTIALS: Final = '[http]\nproxy =\n[credential]\nhelper = "!f() { echo username=gpu; echo password=own; }; f"\n'


class RemoteServer(ThreadingHTTPServer):
    """The git repositories in a folder, for everyone who has a password; it remembers each request."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and user with password, of each."""
        super().__init__(("127.0.0.1", 0), partial(_RequestHandler, directory=str(folder)))


class _RequestHandler(SimpleHTTPRequestHandler):
    server: RemoteServer

    def do_GET(self) -> None:
        credentials = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        self.server.requests.append((self.command, self.path, credentials))
        if credentials:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_PUT = do_PROPFIND = do_GET  # noqa: N815 (the names are those of the methods)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[RemoteServer]:
    with RemoteServer(folder) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def site() -> Iterator[MachinePlan]:
    site = MachinePlan(PLAN, ("gpu-1",))
    yield site
    site.close()


def test_a_machine_gets_the_address_of_the_remote_without_its_password_and_nothing_is_pushed(
    site: MachinePlan, tmp_path: Path
) -> None:
    git, bare = site.repo.git, tmp_path / "shop.git"
    git("clone", "--quiet", "--bare", str(site.repo.folder), str(bare))
    git("update-server-info", at=bare)
    refs = git("for-each-ref", at=bare)
    own = site.paths("gpu-1").config.parent / "git"
    own.mkdir()
    (own / "config").write_text(CREDENTIALS)

    with serve(tmp_path) as server:
        git("remote", "add", "origin", f"http://anna:{PASSWORD}@127.0.0.1:{server.server_port}/shop.git")
        ended = site.run()

    assert ended.outcome == "claimed", {id_: at.failures for id_, at in ended.tasks.items()}
    assert "x.txt" in site.branch("plan/tidy.1-lexer")
    assert any("/objects/" in path for _, path, _ in server.requests), "its commits came from the remote"
    assert {"", "gpu:own"} == {credentials for _, _, credentials in server.requests}
    assert {"GET"} == {method for method, _, _ in server.requests}
    assert not [path for _, path, _ in server.requests if "receive-pack" in path]
    assert refs == git("for-each-ref", at=bare)
    there = [path for path in site.machines["gpu-1"].folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [] == [path for path in there if PASSWORD.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://anna:hunter2@forge.example/shop.git", "https://forge.example/shop.git"),
        ("https://hunter2@forge.example:8443/shop.git", "https://forge.example:8443/shop.git"),
        ("http://anna:p@hunter2@forge.example/shop.git", "http://forge.example/shop.git"),
        ("ssh://git:hunter2@forge.example:22/shop.git", "ssh://git@forge.example:22/shop.git"),
        ("ssh://forge.example/shop.git", "ssh://forge.example/shop.git"),
        ("git@forge.example:shop.git", "git@forge.example:shop.git"),
        ("/srv/shop.git", "/srv/shop.git"),
    ],
)
def test_the_user_name_in_the_address_of_an_ssh_remote_stays_and_a_password_is_removed(
    remote: str, address: str, tmp_path: Path
) -> None:
    repo = Repo(tmp_path / "shop")
    assert "" == _address_of_remote(repo.folder), "it has no remote"
    repo.git("remote", "add", "upstream", remote)
    assert address == _address_of_remote(repo.folder), "it has one remote"
    repo.git("remote", "add", "fork", "https://fork.example/shop.git")
    assert "" == _address_of_remote(repo.folder), "it has two remotes, and none is `origin`"
    repo.git("remote", "rename", "upstream", "origin")
    assert address == _address_of_remote(repo.folder)
