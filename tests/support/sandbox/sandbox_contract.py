"""What every tier of sandbox promises; a tier's test file inherits it and gives the tier."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import KasmonError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import RunResult, SandboxPolicy, SandboxRuntime
from kasmon.sandbox.base import RecordTier, SandboxTier
from kasmon.sandbox.guest_client.channel import GuestChannel
from tests.sandbox.conftest import open_to_others

Made = tuple[SandboxPolicy, SandboxRuntime]


class SandboxContract:
    """A subclass gives a fixture `tier`."""

    names = ("aaaaaaaa", "bbbbbbbb")
    wraps = True
    """Whether it has agents."""

    @pytest.fixture
    def make(self, tier: SandboxTier) -> Iterator[Callable[[str], Made]]:
        """Makes a sandbox for a session of that name; all are gone at the end."""
        made: list[SandboxPolicy] = []

        def make(name: str) -> Made:
            policy = SandboxPolicy(session=SessionId(name))
            made.append(policy)
            return policy, tier.create(policy)

        yield make
        for policy in made:
            tier.destroy(policy, None)
            tier.forget(policy)

    def ran(self, runtime: SandboxRuntime, interpreter: str, code: str) -> RunResult:
        with contextlib.closing(GuestChannel(runtime.socket)) as channel:
            return channel.run(interpreter, code, timeout_s=20)  # type: ignore[arg-type]

    def test_the_state_of_an_interpreter_is_available_to_the_next_caller(self, make: Callable[[str], Made]) -> None:
        _, runtime = make(self.names[0])

        self.ran(runtime, "python", "x = 42")

        assert "42\n" == self.ran(runtime, "python", "print(x)").stdout

    def test_its_workspace_is_the_named_folder(self, tier: SandboxTier, make: Callable[[str], Made]) -> None:
        policy, runtime = make(self.names[0])

        self.ran(runtime, "bash", "echo hello > greeting")

        folder = Path(runtime.workspace or tier.workspace(policy))
        assert "hello\n" == (folder / "greeting").read_text()

    def test_two_sandboxes_share_neither_variables_nor_files(self, make: Callable[[str], Made]) -> None:
        (_, one), (_, other) = make(self.names[0]), make(self.names[1])

        for runtime, value in ((one, 1), (other, 2)):
            self.ran(runtime, "python", f"x = {value}; open('x', 'w').write(str(x))")

        assert "1 1\n" == self.ran(one, "python", "print(x, open('x').read())").stdout

    def test_a_paused_sandbox_is_found_and_resumes_with_its_whole_state(
        self, tier: SandboxTier, make: Callable[[str], Made]
    ) -> None:
        policy, runtime = make(self.names[0])
        self.ran(runtime, "python", "x = 42")

        slept = tier.pause(policy, runtime)
        assert tier.find(policy, runtime)

        assert "42\n" == self.ran(tier.resume(policy, runtime, slept), "python", "print(x)").stdout

    def test_a_sandbox_paused_to_disk_resumes_with_its_whole_state_or_its_tier_reports_that_it_cannot(
        self, tier: SandboxTier, make: Callable[[str], Made]
    ) -> None:
        policy, runtime = make(self.names[0])
        self.ran(runtime, "python", "x = 42")
        self.ran(runtime, "bash", 'y=43; cd "$TMPDIR"; echo 44 > file')

        if tier.keeps_memory:
            slept = tier.pause(policy, runtime, to_disk=True, turn=1)
            assert (False, True) == (slept.held, bool(slept.snapshot))
            runtime = tier.resume(policy, runtime, slept)
        else:
            with pytest.raises(UnableError):
                tier.pause(policy, runtime, to_disk=True)

        assert "42\n" == self.ran(runtime, "python", "print(x)").stdout
        assert "43 44\n" == self.ran(runtime, "bash", "[ $PWD = $TMPDIR ] && echo $y $(cat file)").stdout

    def test_a_destroyed_sandbox_is_gone_even_if_it_was_paused_and_its_files_stay(
        self, tier: SandboxTier, make: Callable[[str], Made]
    ) -> None:
        policy, runtime = make(self.names[0])
        self.ran(runtime, "bash", "echo hello > greeting")
        tier.pause(policy, runtime)

        tier.destroy(policy, runtime)
        tier.destroy(policy, runtime)

        assert not tier.find(policy, runtime)
        assert not Path(runtime.socket).exists()
        assert (Path(runtime.workspace or tier.workspace(policy)) / "greeting").exists()

    def test_a_sandbox_at_an_unknown_place_can_be_destroyed(
        self, tier: SandboxTier, make: Callable[[str], Made]
    ) -> None:
        policy, runtime = make(self.names[0])

        tier.destroy(policy, None)

        assert not tier.find(policy, runtime)

    def test_another_process_of_the_same_id_is_not_the_sandbox(
        self, tier: SandboxTier, make: Callable[[str], Made]
    ) -> None:
        policy, runtime = make(self.names[0])

        assert not tier.find(policy, msgspec.structs.replace(runtime, started=runtime.started + 60))
        assert not tier.find(policy, msgspec.structs.replace(runtime, boot="another"))

    def test_a_lost_sandbox_cannot_be_resumed(self, tier: SandboxTier, make: Callable[[str], Made]) -> None:
        policy, runtime = make(self.names[0])
        slept = tier.pause(policy, runtime)
        tier.destroy(policy, runtime)

        with pytest.raises(KasmonError):
            tier.resume(policy, runtime, slept)

    def test_a_removed_session_leaves_no_files(self, tier: SandboxTier, make: Callable[[str], Made]) -> None:
        policy, runtime = make(self.names[0])
        folder = Path(runtime.workspace or tier.workspace(policy))
        tier.destroy(policy, runtime)

        tier.forget(policy)
        tier.forget(policy)

        assert not folder.exists()

    def test_a_command_runs_in_the_guest_on_its_callers_pipes_with_its_exit_code(
        self, tier: SandboxTier, shared: Path
    ) -> None:
        policy = SandboxPolicy(session=SessionId(self.names[0]), tier=tier.tier)
        words = "cat; echo $OWN $HOME; echo made > made; echo wrong >&2; exit 5"
        workdir = open_to_others(shared / "work")
        if not self.wraps:
            with pytest.raises(UnableError):
                tier.wrap(policy, ["bash"], str(workdir), {})
            return
        command = tier.wrap(policy, ["bash", "-c", words], str(workdir), {**os.environ, "OWN": "mine"})
        try:
            done = subprocess.run(command, input=b"given\n", capture_output=True, timeout=100)
        finally:
            tier.forget(policy)

        said = (done.returncode, done.stdout, done.stderr)
        assert (5, b"given\nmine /home/sandbox\n", b"wrong\n") == said, said
        assert "made\n" == (workdir / "made").read_text()
        assert not isinstance(tier, RecordTier) or tier.adopt(policy) is None
