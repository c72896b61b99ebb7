"""Pages about other machines: reached by ssh, without kasmon and with it, and members of a cluster."""

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kasmon.bus.nats.creation import find_free_port
from kasmon.errors import RefusedError
from tests.support.bus.server_programs import free_ports, need_server
from tests.support.claude_screen import message
from tests.support.cli.fork_server import KASMON
from tests.support.cli.page_run import PageRun, PageStory, succeed
from tests.support.host.sshd import Sshd
from tests.support.wait import until

CLAUDE = f"""\
#!/bin/sh
{message("Hello")}
while read -r prompt; do {message("$prompt")}; done
"""
BUS = "kasmon bus --cluster main --allow see,prompt,answer"
COPIES = (
    "scp -r ~/.local/state/kasmon/cluster/main/servers/2 192.0.2.8:kasmon-server",
    "scp -r ~/.local/state/kasmon/cluster/main/servers/3 192.0.2.9:kasmon-server",
)


@contextmanager
def box_of(run: PageRun, **programs: str) -> Iterator[Sshd]:
    """A machine that ssh reaches as `box`, where PATH has *programs*: a name -> its text."""
    root = Path(tempfile.mkdtemp(prefix="kp-", dir="/tmp"))
    try:
        for name, text in programs.items():
            (root / "bin").mkdir(exist_ok=True)
            (root / "bin" / name).write_text(text)
            (root / "bin" / name).chmod(0o755)
        box = Sshd(root, {"PATH": f"{root / 'bin'}:{run.kasmon.environment['PATH']}"})
        (box.home / ".profile").write_text(f"PATH={root / 'bin'}:$PATH\n")  # log-in shells set a PATH of their own
        try:
            run.configure(box.config)
            yield box
        finally:
            box.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def box_with_kasmon(run: PageRun) -> Iterator[Sshd]:
    """A machine with a kasmon of its own, which has the folder `shop`."""
    there = run.open_machine()
    (there.home / "shop").mkdir()
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in there.environment.items())
    with box_of(run, kasmon=f'#!/bin/sh\nexec env {variables} {" ".join(KASMON)} "$@"\n') as box:
        yield box


@contextmanager
def box_without_kasmon(run: PageRun) -> Iterator[None]:
    """A machine with a claude, whose screen has the prompt of the page at its end."""
    del run.filled["--agent claude"]
    with box_of(run, claude=CLAUDE):
        yield
        until(lambda: "The login test fails since Tuesday." in run.kasmon("read", "fix-auth").out, what="the prompt")


@contextmanager
def machine_to_register(run: PageRun) -> Iterator[None]:
    """A machine with kasmon. At the end, its session is listed here until the machine is removed."""
    with box_with_kasmon(run):
        run.filled["you@gpu-1"] = "box"
        yield
        assert "fix-auth" in succeed(run, "kasmon ls --machine gpu-1").out
        succeed(run, "kasmon machines rm gpu-1")
        assert "fix-auth" not in run.kasmon("ls").out


@contextmanager
def cluster_site(run: PageRun) -> Iterator[None]:
    """A machine that ssh reaches, for the files of further servers; the clusters are on free ports of loopback."""
    need_server()
    with box_of(run) as box:
        first, *others = free_ports(3)
        own = "--host 127.0.0.1 --port"
        run.filled |= {
            "--host 192.0.2.7": f"{own} 0",
            "--host 192.0.2.7 --servers 192.0.2.8,192.0.2.9": (
                f"{own} {first} --servers {','.join(f'127.0.0.1:{port}' for port in others)}"
            ),
            "7422": str(find_free_port()),
            "kasmon cluster up": "kasmon cluster up --no-unit",
            "scp": f"scp -F {box.root / 'ssh_config'}",
            "192.0.2.8:kasmon-server": f"box:{box.home}/2",
            "192.0.2.9:kasmon-server": f"box:{box.home}/3",
            "SERVERS": str(box.home),
        }
        yield
        until(lambda: "leafnode of laptop: connected" in run.kasmon("cluster", "status").out, what="the leafnode")


def begin(run: PageRun, line: str) -> None:
    """Make a cluster on a machine of its own: each section of the page has one of the same name."""
    run.kasmon = run.open_machine()
    run.filled["~/.local/state/kasmon"] = str(run.kasmon.paths.state)
    succeed(run, line)


def get_token(run: PageRun, line: str) -> None:
    """From now on TOKEN is what *line* prints; it is for another machine if its role is that."""
    run.filled["TOKEN"] = succeed(run, line).out.strip()
    run.other = run.open_machine() if "--role machine" in line else run.kasmon


def join(run: PageRun, line: str) -> None:
    done = run.other(*run.words(line)[1:])
    assert 0 == done.code, done.err


def copy(run: PageRun, line: str) -> None:
    subprocess.run(run.words(line), check=True, stdin=subprocess.DEVNULL)


def serve_both(run: PageRun, line: str) -> None:
    """The second and the third server, each on its machine."""
    for number in ("2", "3"):
        run.serve(line.replace("kasmon-server", f"{run.filled['SERVERS']}/{number}"), "serving from")


def make_leaf(run: PageRun, line: str) -> None:
    """Make it on the laptop, where the page stays."""
    run.kasmon = run.other
    succeed(run, line)


def revoke(run: PageRun, line: str) -> None:
    """Its service ends by itself, and says why."""
    succeed(run, line)
    assert RefusedError.exit_code == run.served.pop().ended()


STORIES = {
    "docs/cluster.md": PageStory(
        fixture=cluster_site,
        acts={
            "kasmon cluster init --host 192.0.2.7": begin,
            "kasmon cluster token --role machine --name gpu-1": get_token,
            "kasmon cluster token --role operator --name ann": get_token,
            "kasmon cluster token --role machine --name laptop": get_token,
            "kasmon machines join TOKEN": join,
            BUS: lambda run, line: run.serve(line, "serving as", run.other),
            "kasmon cluster revoke gpu-1": revoke,
            "kasmon cluster init --host 192.0.2.7 --servers 192.0.2.8,192.0.2.9": begin,
            **dict.fromkeys(COPIES, copy),
            "kasmon cluster serve kasmon-server": serve_both,
            "kasmon cluster init --host 192.0.2.7 --leaf-port 7422": begin,
            "kasmon cluster leaf": make_leaf,
        },
    ),
    "docs/fleet.md": PageStory(fixture=machine_to_register),
    "docs/remote.md": PageStory(fixture=box_without_kasmon),
}
