"""Ten nights over a clone, a cd and a build, in a real jail: no file, variable or process is lost by sleep."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.managed.idle_policy import LifetimeTerms
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.sandbox import ManagedSandbox

pytestmark = pytest.mark.sandboxes
NIGHTS = (
    "git config --global safe.directory '*'; git clone -q --no-local file:///project repo",
    "cd repo; echo $$",
    "python3 build.py part1",
    "export NIGHT=4; n=1",
    "python3 build.py part2 && n=$((n+1))",
    "git config user.name me; git config user.email me@example.org; git add -A; git commit -qm built",
    "python3 build.py part3 && n=$((n+1))",
    "git checkout -qb later; git mv part1.txt one.txt; git commit -qm moved",
    "python3 build.py part4 && n=$((n+1))",
    "git fsck --strict 2>/dev/null && git log --oneline | wc -l && git status --porcelain && echo $n $NIGHT $PWD $$",
)
BUILD = """
import hashlib, pathlib, sys
name = sys.argv[1]
source = b"".join(path.read_bytes() for path in sorted(pathlib.Path("src").iterdir()))
pathlib.Path(f"{name}.txt").write_text(hashlib.sha256(name.encode() + source).hexdigest())
"""


@pytest.fixture
def project(shared: Path) -> Path:
    """A repository to clone."""
    repo = shared / "project"
    (repo / "src").mkdir(parents=True)
    for number in range(50):
        (repo / "src" / f"{number:02}").write_bytes(bytes([number]) * 1000)
    (repo / "build.py").write_text(BUILD)
    git = ["git", "-C", str(repo), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, env={"PATH": os.environ["PATH"]})
    subprocess.run(["chmod", "-R", "a+rX", str(repo)], check=True)
    return repo


@pytest.fixture
def box(can_jail: None, project: Path) -> Iterator[ManagedSandbox]:
    jail, policy, facts = Jail(), SandboxPolicy(session=SessionId("nights-a"), project=str(project)), list[Event]()
    journal = SandboxJournal(None, facts.append, tier="jail", keeps_memory=False, terms=LifetimeTerms())
    made = ManagedSandbox(jail, policy, journal, lambda runtime: GuestChannel(runtime.socket))
    made.arrive()
    yield made
    made.end("the test is over")
    jail.forget(policy)


def files(box: ManagedSandbox) -> dict[str, str]:
    """What each file of its workspace holds, as seen from outside."""
    top = Path(box.workspace)
    return {
        str(path.relative_to(top)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in top.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def test_ten_pauses_over_a_clone_a_cd_and_a_build_lose_no_file(box: ManagedSandbox, project: Path) -> None:
    """It sleeps in turns as its host would let it sleep, and as nothing but its tier would."""
    runtime = box.journal.sandbox_state.runtime
    assert runtime is not None
    said = shell = ""
    for number, step in enumerate(NIGHTS):
        ran = box.run("bash", step)
        assert 0 == ran.exit_code, (step, ran.stderr)
        said, before = ran.stdout, files(box)
        shell = shell or said.strip()
        if number % 2:
            box.sleep()
            assert SandboxPhase.PAUSED is box.phase
            assert before == files(box)
            assert "" == box.wake()
        else:
            slept = box.tier.pause(box.policy, runtime)
            assert PauseResult(held=True) == slept
            box.tier.resume(box.policy, runtime, slept)
        assert before == files(box)
        assert (runtime, 1) == (box.journal.sandbox_state.runtime, box.journal.sandbox_state.generation)

    assert ["3", "?? part3.txt", "?? part4.txt", f"4 4 /workspace/repo {shell}"] == said.splitlines()
    source = b"".join(path.read_bytes() for path in sorted((project / "src").iterdir()))
    built = {name: hashlib.sha256(name.encode() + source).hexdigest() for name in ("part1", "part2", "part3", "part4")}
    made = Path(box.workspace) / "repo"
    assert list(built.values()) == [(made / f"{name}.txt").read_text() for name in ("one", "part2", "part3", "part4")]
    assert 50 == len(list((made / "src").iterdir()))
