"""A real agent with a home of its own and a model server on loopback, for as long as its screens are taken."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import psutil

from tests.support.agents.full_stack import beside
from tests.support.agents.more_agents import AGENTS
from tests.support.agents.real_agent import MORE_INSTALLED, OWN_PREFIXES, ROOT, family, find, settled
from tests.support.detection.golden import save
from tests.support.detection.terminal import CELLS, Terminal
from tests.support.wait import until

DEAD_PROXY: Final = "http://127.0.0.1:9"
"""Nothing listens there: no agent reaches anybody but the model server."""


def steps(count: int = 40, end: str = "a") -> str:
    """A command of *count* short lines, and a last one that says *end*."""
    return "".join(f"echo step {number} of forty &&\n" for number in range(1, count + 1)) + f"touch end-{end}.txt"


class Studio:
    """The agent *name* of *version*, and where its golden folders go."""

    def __init__(self, name: str, version: str, url: str, root: Path) -> None:
        self.name, self.version, self.url, self.root = name, version, url, root
        self.count = 0
        self.missed: list[str] = []
        """The cases that were not reached."""

    @contextlib.contextmanager
    def stage(
        self,
        *arguments: str,
        cells: tuple[int, int] = CELLS,
        own: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        around: Sequence[str] = (),
        settings: bool = True,
    ) -> Iterator[Terminal]:
        """The agent with *arguments*, in a fresh home and folder; *own* are further variables.

        Args:
            files: what is put into its home, by path, in place of what stands there.
            without: files of its home that are taken away, and variables.
            around: what its command line is put behind.
            settings: whether it has the settings that make it call the model server.
        """
        home, workdir = self._folders()
        program = find(self.name)
        if program is None:
            target = "more-agents" if self.name in AGENTS else "agents"
            raise FileNotFoundError(f"{self.name!r} is not installed: run `make {target}`")
        known = settled(self.name, home, workdir, self.url) if settings else {}
        variables = {**_outside(home), **known, **(own or {})}
        for path in without:
            variables.pop(path, None)
            (home / path).unlink(missing_ok=True)
        for path, text in (files or {}).items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text.replace("{url}", self.url).replace("{workdir}", str(workdir)))
        try:
            with Terminal((*around, str(program), *arguments), variables, workdir, cells) as stage:
                yield stage
        finally:
            _end(home)

    @contextlib.contextmanager
    def program(self, name: str, argv: Sequence[str], own: Mapping[str, str] | None = None) -> Iterator[Terminal]:
        """Any program, in a fresh home and folder; it goes by *name*."""
        home, workdir = self._folders()
        self.name = name
        path = {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
        try:
            with Terminal(argv, {**_outside(home), **path, **(own or {})}, workdir) as stage:
                yield stage
        finally:
            _end(home)

    def _folders(self) -> tuple[Path, Path]:
        self.count += 1
        home, workdir = self.root / f"h{self.count}" / "home", self.root / f"h{self.count}" / "work"
        for folder in (home, workdir, home.parent / "tmp"):
            folder.mkdir(parents=True)
        return home, workdir

    def keep(self, stage: Terminal, case: str, state: str, *, holds: str = "", lacks: str = "", **more: Any) -> None:
        """Keep the screen as the golden folder *case*: it shows *state*, and what *more* says.

        It is the first screen that holds the pattern *holds* and not *lacks*; without either one that stands still. If
        none comes, *case* is in `missed`.
        """
        try:
            if not (holds or lacks):
                stage.still()
            shot = stage.shot_with(holds, lacks) if holds or lacks else stage.shot()
        except TimeoutError as error:  # an agent may pass over a screen, if it or the machine is faster or slower
            self.missed.append(case)
            print(f"  {self.name} {self.version} {case}: not reached: {error}", flush=True)
            return
        text, title = shot.text, shot.title
        for path in (str(stage.workdir.parent), str(self.root)):
            text, title = text.replace(path, _as_long(path)), title.replace(path, _as_long(path))
        agent, version = ("shell", self.name) if self.name in ("bash", "sh") else (self.name, self.version)
        save(agent, version, case, shot._replace(text=text, title=title), {"state": state, **more})
        print(f"  {self.name} {self.version} {case}", flush=True)


@contextlib.contextmanager
def studio(name: str, version: str) -> Iterator[Studio]:
    """A studio with a model server."""
    root = Path(tempfile.mkdtemp(prefix="kg-", dir="/tmp")).resolve()
    try:
        with contextlib.contextmanager(beside)() as stub:
            yield Studio(name, version, stub.url, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def refusing(status: int, body: str, headers: Mapping[str, str]) -> Iterator[str]:
    """The address of a server that answers everything with this refusal."""

    class Refusal(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for header, value in headers.items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST  # noqa: N815 - the name that the library calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _outside(home: Path) -> dict[str, str]:
    """The variables of a person who has nothing set, whose home is *home*."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*OWN_PREFIXES, "XDG_", "TMUX"))}
    folders = {"HOME": str(home), "TMPDIR": str(home.parent / "tmp"), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    folders["PATH"] = f"{MORE_INSTALLED}:{os.environ['PATH']}"  # the node that some agents need
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), DEAD_PROXY)
    return {**kept, **folders, **proxies, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


def _as_long(path: str) -> str:
    """A folder's name that is no longer, no shorter and no different each time."""
    return ("/home/somebody/" + "x" * len(path))[: len(path)]


def _end(home: Path) -> None:
    for process in family(home):
        with contextlib.suppress(psutil.Error):
            process.kill()
    until(lambda: not family(home), what="the agent's end")
