"""One sandbox through its life: found again or made, put to sleep and woken, healed before anybody trusts it, ended."""

import os
import signal
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from kasmon.bus.nats.creation import find_free_port
from kasmon.errors import NotFoundError, RefusedError, SandboxError
from kasmon.model.events import Checkpointed, NoticeRaised, SandboxPhaseChanged
from kasmon.model.sandbox.policy import (
    Credential,
    SandboxPhase,
    SandboxPolicy,
    SandboxRuntime,
    ServiceSpec,
    VolatileFile,
)
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from kasmon.sandbox.shared.credentials import SETTLED_NS
from tests.support.sandbox.full_disk import full_disk
from tests.support.sandbox.sandbox_process import ME, SandboxProcess
from tests.support.sandbox.unconfined_tier import UnconfinedTier
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes
BEGUN, DONE = "intended", "confirmed"


def said(box: ManagedSandbox, code: str, interpreter: str = "bash") -> str:
    return box.run(interpreter, code, variables=box.credentials().values).stdout  # type: ignore[arg-type]


def test_a_sandbox_is_created_once_and_its_phases_are_reported(stage: SandboxProcess) -> None:
    box = stage.host()

    assert "" == box.arrive()

    assert [
        (SandboxPhase.CREATING, BEGUN),
        (SandboxPhase.CREATING, DONE),
        (SandboxPhase.RUNNING, DONE),
    ] == stage.moves()
    assert "ok\n" == said(box, "echo ok")


def test_the_five_phases_of_a_pause_are_reported_in_order(stage: SandboxProcess) -> None:
    box = stage.arrived()
    stage.facts.clear()

    box.sleep()
    box.wake()

    phases = [
        SandboxPhase.PAUSING,
        SandboxPhase.PERSISTING,
        SandboxPhase.PAUSED,
        SandboxPhase.RESUMING,
        SandboxPhase.HEALING,
        SandboxPhase.RUNNING,
    ]
    assert phases == [phase for phase, _ in stage.moves()]


def test_a_shell_that_ended_before_the_sandbox_was_examined_is_reported_to_have_lost_its_state(
    stage: SandboxProcess,
) -> None:
    """The look runs in a new one, which nobody but the look hears of."""
    box = stage.arrived()
    said(box, "x=42")
    shell = box.run("bash", "echo $$").stdout
    box.sleep()
    os.kill(int(shell), signal.SIGKILL)

    assert "bash had ended: its variables are lost" == box.wake()


def test_a_paused_sandbox_runs_nothing_and_continues_with_its_state(stage: SandboxProcess) -> None:
    box = stage.arrived()
    said(box, "x=42")
    box.sleep()

    with pytest.raises(RefusedError, match="paused"):
        said(box, "echo $x")
    assert "" == box.wake()
    assert "42\n" == said(box, "echo $x")


def test_the_next_host_finds_the_sandbox_of_a_dead_one(stage: SandboxProcess) -> None:
    said(stage.arrived(), "x=42")

    after = stage.host()

    assert "" == after.arrive()
    assert "42\n" == said(after, "echo $x")
    assert 1 == stage.living


def test_the_next_host_keeps_a_paused_sandbox_paused(stage: SandboxProcess) -> None:
    before = stage.arrived()
    said(before, "x=42")
    before.sleep()
    stage.facts.append(stage.facts[-1])

    after = stage.arrived()

    assert SandboxPhase.PAUSED is after.phase
    assert "" == after.wake()
    assert "42\n" == said(after, "echo $x")


def test_a_lost_sandbox_is_replaced_over_the_same_files_and_that_is_reported(stage: SandboxProcess) -> None:
    before = stage.arrived()
    said(before, "x=42; echo kept > file")
    stage.tier.made[0].kill()
    stage.tier.made[0].wait()

    after = stage.host()

    assert "the sandbox had ended: interpreter state lost; files kept" == after.arrive()
    assert "kept\n\n" == said(after, "cat file; echo $x")
    assert 2 == after.journal.sandbox_state.generation


def test_a_sandbox_that_does_not_answer_in_time_is_not_trusted(stage: SandboxProcess) -> None:
    before = stage.arrived()
    said(before, "x=42")
    runtime = before.journal.sandbox_state.runtime
    assert runtime is not None
    path = Path(runtime.socket)
    path.rename(path.with_name("away"))

    after = stage.host()

    assert "interpreter state lost" in after.arrive()
    assert "\n" == said(after, "echo $x")
    assert 1 == stage.living


def test_an_interpreter_that_restarted_meanwhile_is_reported(stage: SandboxProcess) -> None:
    box = stage.arrived()
    pid = int(said(box, "x=1; echo $$"))
    counted = {"bash": 7}
    stage.facts.append(msgspec.structs.replace(_last_move(stage), counters=counted))
    os.kill(pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pid))  # who asks before its agent knows is told of a run that ended so

    stage.arrived()

    assert "bash was restarted and lost its state" in stage.told()


def test_volatile_files_are_written_again_after_a_pause(stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "hunter2-hunter2")
    path = str(stage.root / "token")
    stage.policy = SandboxPolicy(
        session=ME,
        volatile=(
            VolatileFile(path=path, source="TOKEN"),
            VolatileFile(path=f"{path}.conf", content="mode=1\n", mode=0o644),
        ),
        credentials=(Credential(name="TOKEN", variable="MINE"),),
    )
    box = stage.arrived()
    assert "hunter2-hunter2" == Path(path).read_text()
    box.sleep()
    for file in (path, f"{path}.conf"):
        Path(file).unlink()

    box.wake()

    assert "hunter2-hunter2" == Path(path).read_text()
    assert ("mode=1\n", 0o644) == (Path(f"{path}.conf").read_text(), Path(f"{path}.conf").stat().st_mode & 0o777)


def test_a_failed_pause_is_a_warning_and_the_sandbox_keeps_running(stage: SandboxProcess) -> None:
    box = stage.arrived()
    said(box, "x=42")
    stage.tier.fails = "the kernel said no"

    box.sleep()

    assert "The sandbox was not paused: it failed: the kernel said no." in stage.told()
    assert SandboxPhase.RUNNING is box.phase
    assert "42\n" == said(box, "echo $x")


def test_a_sandbox_that_cannot_be_resumed_is_replaced_and_the_loss_is_reported(stage: SandboxProcess) -> None:
    box = stage.arrived()
    said(box, "x=42")
    box.sleep()
    stage.tier.fails = "it would not"

    assert box.wake().startswith("it could not be resumed (it failed: it would not): interpreter state lost")
    assert 1 == stage.living


def test_a_sandbox_that_cannot_be_created_leaves_nothing(stage: SandboxProcess) -> None:
    stage.tier.fails = "there is no room"

    with pytest.raises(SandboxError, match="there is no room"):
        stage.arrived()

    assert (SandboxPhase.EXPIRED, DONE) == stage.moves()[-1]
    assert 0 == stage.living


def test_the_end_leaves_no_process_and_no_socket(stage: SandboxProcess) -> None:
    box = stage.arrived()
    runtime = box.journal.sandbox_state.runtime
    said(box, "sleep 1000 & echo kept > file")
    assert runtime is not None

    box.end("over")
    box.end("over")

    assert 0 == stage.living
    assert not Path(runtime.socket).exists()
    assert (Path(box.workspace) / "file").exists()
    with pytest.raises(SandboxError, match="over"):
        box.wake()


def test_credentials_reach_a_run_and_not_the_next_one(stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "hunter2-hunter2")
    stage.policy = SandboxPolicy(
        session=ME, credentials=(Credential(name="TOKEN", variable="MINE", aliases=("OTHER",)),)
    )
    box = stage.arrived()

    assert "hunter2-hunter2 hunter2-hunter2\n" == said(box, "echo $TOKEN $OTHER")
    monkeypatch.setenv("MINE", "another-value")
    assert "another-value\n" == said(box, "echo $TOKEN")
    monkeypatch.delenv("MINE")
    assert "none\n" == said(box, "echo ${TOKEN:-none}")


def test_no_checkpoint_holds_a_credential_wherever_code_wrote_it(
    stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary: in an interpreter's names, in a volatile file, in an environment; and one that stays is told."""
    canary = "canary-7f3a91c2e5"
    monkeypatch.setenv("MINE", canary)
    stage.policy = SandboxPolicy(
        session=ME,
        volatile=(VolatileFile(path=str(stage.root / ME / "workspace" / "token"), source="TOKEN"),),
        credentials=(Credential(name="TOKEN", variable="MINE"),),
    )
    box = stage.arrived()
    said(box, "import os; mine = os.environ['TOKEN']; both = [mine, {'a': mine}]; plain = 1", "python")
    said(box, "mine=$TOKEN; export mine; plain=1")

    stage.keeping.create("asked")

    points = stage.keeping._points
    assert canary.encode() not in points.state("c1")
    copy = stage.root / "copy"
    points.fork("c1", str(copy))
    assert not [path for path in copy.rglob("*") if path.is_file() and canary in path.read_text()]
    assert canary == (Path(box.workspace) / "token").read_text()
    kept = next(fact for fact in stage.facts if isinstance(fact, Checkpointed))
    assert any("plain" in name for name in kept.kept)
    assert canary not in str(kept)


CANARY = "canary-7f3a91c2e5"
HOLDS = {
    "python": "import os; mine = os.environ['TOKEN']; os.environ['COPY'] = mine; plain = 1",
    "bash": "mine=$TOKEN; export mine; plain=1",
    "node": "globalThis.mine = process.env.TOKEN; process.env.COPY = mine; globalThis.plain = 1",
}
HAS = {
    "python": "print(plain, 'mine' in globals(), [name for name in os.environ if name in ('TOKEN', 'COPY')])",
    "bash": "echo $plain ${TOKEN-} ${mine-}",
    "node": "console.log(plain, globalThis.mine, process.env.TOKEN, process.env.COPY)",
}


def held_outside(stage: SandboxProcess, box: ManagedSandbox) -> list[str]:
    """Where the canary is found by whoever looks at all that the sandbox has from outside."""
    runtime = box.journal.sandbox_state.runtime
    assert runtime is not None
    found = [str(path) for path in stage.root.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    environments = stage.tier.environments(stage.policy, runtime)
    return found + [name for name, environ in environments if CANARY.encode() in environ]


def with_canary(stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch) -> ManagedSandbox:
    monkeypatch.setenv("MINE", CANARY)
    stage.policy = SandboxPolicy(
        session=ME,
        volatile=(VolatileFile(path=str(stage.root / "token"), source="TOKEN"),),
        credentials=(Credential(name="TOKEN", variable="MINE"),),
    )
    return stage.arrived()


def test_a_sandbox_paused_in_memory_holds_no_credential_in_files_environments_and_interpreters(
    stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not in what a shell that exited left for the next one; awake it has its volatile files again."""
    box = with_canary(stage, monkeypatch)
    for interpreter, code in HOLDS.items():
        said(box, code, interpreter)
    said(box, "exit 3")
    assert [str(stage.root / "token")] == [path for path in held_outside(stage, box) if "bash.carried" not in path]

    box.sleep()

    assert [] == held_outside(stage, box)
    assert "stands in" not in stage.told()
    box.wake()
    assert CANARY == (stage.root / "token").read_text()
    without = {name: box.run(name, code).stdout for name, code in HAS.items()}  # type: ignore[arg-type]
    assert {"python": "1 False []\n", "bash": "1\n", "node": "1 undefined undefined undefined\n"} == without


def test_a_shell_that_exits_in_a_run_passes_no_credential_to_the_next(
    stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = with_canary(stage, monkeypatch)
    said(box, "v=1; exit 3")

    assert "1 none\n" == box.run("bash", "echo $v ${TOKEN-none}").stdout


def test_credentials_that_code_left_beside_its_workspace_are_named_at_a_pause(
    stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = with_canary(stage, monkeypatch)
    said(box, "echo $TOKEN > $TMPDIR/mine; sleep 1000 &")

    box.sleep()

    assert "The value of a credential is in /tmp/mine (TOKEN), the environment of process" in stage.told()
    assert "(sleep) (TOKEN)" in stage.told()
    assert CANARY not in stage.told()


def test_a_credential_that_cannot_be_removed_prevents_the_pause_with_a_warning(
    stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = with_canary(stage, monkeypatch)
    said(box, "x = 42", "python")
    monkeypatch.setattr(box.guest, "forget", refuses)

    box.sleep()

    assert SandboxPhase.RUNNING is box.phase
    assert "The sandbox was not paused: nothing is certain" in stage.told()
    assert CANARY == (stage.root / "token").read_text()
    assert "42\n" == said(box, "print(x)", "python")


def refuses(*_: object) -> None:
    raise SandboxError("nothing is certain", "an interpreter does not hear")


def test_a_host_that_died_before_a_pause_leaves_volatile_files_that_the_next_one_writes_again(
    stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = with_canary(stage, monkeypatch)
    box.clean()
    assert "" == (stage.root / "token").read_text()

    stage.arrived()

    assert CANARY == (stage.root / "token").read_text()


def test_a_memory_mapped_file_is_searched_and_kept_though_its_times_stay(
    stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that waits for the disk takes further writes without a word to anybody."""
    box = with_canary(stage, monkeypatch)
    said(
        box, "import mmap; f = open('file', 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 0); m[0] = 1", "python"
    )
    file = Path(box.workspace) / "file"
    until(lambda: time.time_ns() - file.stat().st_ctime_ns > 2 * SETTLED_NS)
    stage.keeping.create("asked")
    before = file.stat()

    said(box, f"m[1:{len(CANARY) + 1}] = b{CANARY!r}", "python")
    stage.keeping.create("asked")

    assert (before.st_ctime_ns, before.st_mtime_ns) == (file.stat().st_ctime_ns, file.stat().st_mtime_ns)
    assert "is in file (TOKEN)" in stage.told()
    copy = stage.root / "copy"
    stage.keeping._points.fork("c2", str(copy))
    assert CANARY.encode() in (copy / "file").read_bytes()


def test_a_file_with_a_credential_that_code_wrote_is_named(
    stage: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "hunter2-hunter2")
    stage.policy = SandboxPolicy(session=ME, credentials=(Credential(name="TOKEN", variable="MINE"),))
    box = stage.arrived()
    said(box, "echo url=https://$TOKEN@host > config")

    stage.keeping.create("asked")

    assert "The value of a credential is in config (TOKEN)" in stage.told()


def test_a_checkpoint_is_restored_with_files_and_names(stage: SandboxProcess) -> None:
    box = stage.arrived()
    box.run("python", "x = 1; open('file', 'w').write('one')")
    first = stage.keeping.create("asked")
    box.run("python", "x = 2; open('file', 'w').write('two')")

    stage.keeping.restore(first)

    assert "1 one\n" == box.run("python", "print(x, open('file').read())").stdout
    assert 1 == stage.living


def test_names_that_could_not_be_stored_are_reported_at_the_restore(stage: SandboxProcess) -> None:
    box = stage.arrived()
    box.run("python", "import threading; lock = threading.Lock(); x = 1")
    first = stage.keeping.create("asked")

    assert "lock" in stage.keeping.restore(first)


def test_a_checkpoint_of_a_paused_sandbox_is_complete_and_it_stays_paused(stage: SandboxProcess) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    box.sleep()

    first = stage.keeping.create("asked")

    assert first
    assert SandboxPhase.PAUSED is box.phase
    stage.keeping.restore(first)
    assert "42\n" == box.run("python", "print(x)").stdout


def test_on_a_full_disk_a_failed_checkpoint_is_reported_and_the_sandbox_continues(stage: SandboxProcess) -> None:
    box = stage.arrived()
    assert stage.keeping.create("asked")
    box.run("python", "x = 42")
    with full_disk(8):
        assert "" == stage.keeping.create("asked")

    assert "No checkpoint was created: File too large." in stage.told()
    assert "42\n" == box.run("python", "print(x)").stdout
    assert stage.keeping.create("asked")


def test_a_missing_checkpoint_changes_nothing(stage: SandboxProcess) -> None:
    box = stage.arrived()
    said(box, "x=42")

    with pytest.raises(NotFoundError):
        stage.keeping.restore("c99")

    assert "42\n" == said(box, "echo $x")


def test_an_empty_workspace_can_be_restored(stage: SandboxProcess) -> None:
    box = stage.arrived()
    first = stage.keeping.create("asked")
    said(box, "echo 1 > file")

    stage.keeping.restore(first)

    assert "0\n" == said(box, "ls | wc -l")


def test_the_last_checkpoint_is_restored_if_a_sandbox_was_lost(stage: SandboxProcess) -> None:
    box = stage.arrived()
    box.run("python", "x = 42")
    stage.keeping.create("after")
    stage.tier.made[0].kill()
    stage.tier.made[0].wait()

    after = stage.host()

    assert "saved variables were restored" in after.arrive()
    assert "42\n" == after.run("python", "print(x)").stdout


def test_ten_pauses_over_a_clone_a_cd_and_a_build_lose_nothing(stage: SandboxProcess) -> None:
    box = stage.arrived()
    steps = ["mkdir -p repo && echo 'all: ; cat src > out' > repo/Makefile", "cd repo", "echo v1 > src"]
    steps += ["[ -e src ] && cat src > out", "cat out", "n=1"] + ["n=$((n+1)); echo $n > n$n"] * 4

    for step in steps:
        assert 0 == box.run("bash", step).exit_code, step
        box.sleep()
        assert "" == box.wake()

    assert "v1 5\nMakefile n2 n3 n4 n5 out src \n" == said(box, 'echo $(cat out) $n; ls | tr "\\n" " "; echo')
    assert 1 == stage.living


def test_a_stopped_service_is_restarted_at_the_resume(stage: SandboxProcess) -> None:
    port = find_free_port()
    start = f"echo $$ > web.pid; exec python3 -m http.server --bind 127.0.0.1 {port}"
    stage.policy = SandboxPolicy(session=ME, services=(ServiceSpec(name="web", port=port, start=start),))
    box = stage.arrived()
    until(lambda: f"'web' responds on port {port}" in stage.told())
    assert ["info"] == [fact.level for fact in stage.facts if isinstance(fact, NoticeRaised) and "'web'" in fact.text]
    box.sleep()
    box.wake()
    said(box, f"kill -9 $(cat web.pid); while (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do :; done")
    stage.facts.clear()
    box.sleep()

    box.wake()

    assert f"The service 'web' did not respond on port {port}." in stage.told()
    until(lambda: f"'web' responds on port {port}" in stage.told())


def _last_move(stage: SandboxProcess) -> SandboxPhaseChanged:
    return next(fact for fact in reversed(stage.facts) if isinstance(fact, SandboxPhaseChanged))


class Copied(UnconfinedTier):
    """A tier whose sandboxes have a copy of their folder, into which a person's edits come when they are asked for."""

    fault = ""

    def refresh(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> tuple[str, ...]:
        if self.fault:
            raise SandboxError("it is not level", self.fault)
        Path(self.workspace(policy), "edited").write_text("by a person\n")
        return ("'f' was changed on both sides.",)


def test_an_outside_change_is_in_the_guest_before_a_run_and_its_effect_is_reported(stage: SandboxProcess) -> None:
    stage.tier = Copied(stage.root)
    box = stage.arrived()

    assert "by a person\n" == said(box, "cat edited")
    assert "'f' was changed on both sides." in stage.told()

    stage.tier.fault = "its line is cut"
    assert "ok\n" == said(box, "echo ok")
    assert "Changes on this machine were not copied into the sandbox: it is not level: its line is cut." in stage.told()
