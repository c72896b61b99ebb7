"""A credential that a real jail was given is searched for in all of it, from outside, once it sleeps or was kept.

All files in memory and in its folders, what each of its processes was started with, and what interpreters hold.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kasmon.model.events import Event, NoticeRaised
from kasmon.model.sandbox.policy import Credential, VolatileFile
from kasmon.model.sandbox.state import SandboxState, apply_sandbox_event
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.managed.checkpoints import SandboxCheckpoints
from kasmon.sandbox.managed.idle_policy import LifetimeTerms
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from kasmon.sandbox.shared.processes import tree
from kasmon.sandbox.shared.safe_tree import remove_tree
from tests.sandbox.conftest import policy
from tests.sandbox.managed.test_sandbox import HAS, HOLDS

pytestmark = pytest.mark.sandboxes
CANARY: Final = "canary-9c41d07be3"
TOKEN: Final = "/run/token"


class Kept:
    """A jail that is given the canary, with what people were told."""

    def __init__(self, jail: Jail, root: Path) -> None:
        self.jail, self.facts = jail, list[Event]()
        self.policy = policy(
            "c",
            credentials=(Credential(name="TOKEN", variable="MINE"),),
            volatile=(VolatileFile(path=TOKEN, source="TOKEN"),),
        )
        journal = SandboxJournal(None, self.facts.append, tier="jail", keeps_memory=False, terms=LifetimeTerms())
        self.box = ManagedSandbox(jail, self.policy, journal, lambda runtime: GuestChannel(runtime.socket))
        self.keeping = SandboxCheckpoints(self.box, CheckpointStore(root))
        self.box.arrive()

    def run(self, interpreter: str, code: str) -> str:
        return self.box.run(interpreter, code, variables=self.box.credentials().values).stdout  # type: ignore[arg-type]

    @property
    def first(self) -> int:
        sandbox_state: SandboxState | None = None
        for fact in self.facts:
            sandbox_state = apply_sandbox_event(sandbox_state, fact)
        assert sandbox_state is not None
        assert sandbox_state.runtime is not None
        return sandbox_state.runtime.pid

    def told(self) -> str:
        return "\n".join(fact.text for fact in self.facts if isinstance(fact, NoticeRaised))

    def holders(self) -> list[str]:
        """Who has the canary, of all that can be seen from outside: nothing of ours is asked for that."""
        found = []
        for place in ("tmp", "run", "dev/shm", "home", "workspace", "opt"):
            for folder, _, names in os.walk(f"/proc/{self.first}/root/{place}"):
                found += [f"/{place}: {name}" for name in names if CANARY.encode() in content(Path(folder, name))]
        for pid in tree(self.first):
            found += [f"process {pid}" for part in ("environ", "cmdline") if CANARY.encode() in content(at(pid, part))]
        return found


def at(pid: int, part: str) -> Path:
    return Path(f"/proc/{pid}/{part}")


def content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    except OSError:
        return b""


@pytest.fixture
def kept(can_jail: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.setenv("MINE", CANARY)
    root = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    made = Kept(Jail(), root)
    yield made
    if made.box.guest is not None:
        made.box.guest.close()
    made.jail.forget(made.policy)
    remove_tree(root)


def test_a_paused_jail_holds_no_credential_and_has_it_again_when_it_resumes(kept: Kept) -> None:
    for interpreter, code in HOLDS.items():
        kept.run(interpreter, code)
    kept.run("bash", "exit 3")
    assert "/run: token" in kept.holders(), "this search finds what is there"

    kept.box.sleep()

    assert [] == kept.holders()
    assert "stands in" not in kept.told()
    kept.box.wake()
    assert f"{CANARY} {CANARY}\n" == kept.run("bash", f"echo $(cat {TOKEN}) $TOKEN")
    without = {name: kept.box.run(name, code).stdout for name, code in HAS.items()}  # type: ignore[arg-type]
    assert {"python": "1 False []\n", "bash": "1\n", "node": "1 undefined undefined undefined\n"} == without

    kept.run("bash", "echo $TOKEN > /dev/shm/mine; echo $TOKEN > ~/mine; ln -s /etc/passwd /tmp/away; sleep 1000 &")
    kept.box.sleep()

    assert {"/dev/shm: mine", "/home: mine"} <= set(kept.holders())
    for named in (
        "/dev/shm/mine (TOKEN)",
        "/home/sandbox/mine (TOKEN)",
        "(sleep) (TOKEN); it stays there while the sandbox is paused",
    ):
        assert named in kept.told()


def test_a_checkpoint_of_a_jail_holds_no_credential(kept: Kept) -> None:
    for interpreter, code in HOLDS.items():
        kept.run(interpreter, code)

    checkpoint = kept.keeping.create("asked")

    assert ["/run: token"] == kept.holders(), "it has its volatile file again"
    assert CANARY.encode() not in kept.keeping.spare(checkpoint)
    assert any(name.endswith(": plain") for name in kept.box.journal.sandbox_state.checkpoints[-1].kept)
