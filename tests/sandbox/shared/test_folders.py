"""Folders of this machine that a sandbox sees beside its workspace, on every tier that sees any: read, or written."""

import contextlib
from pathlib import Path

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Mount, SandboxPolicy, SandboxRuntime
from kasmon.sandbox.base import MirrorTier, SandboxTier
from kasmon.sandbox.guest_client.channel import GuestChannel
from tests.support.sandbox.tier_classes import OfAJail, OfAMachine

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]  # the first machine is started


class FoldersContract:
    """A subclass gives a fixture `tier`."""

    def ran(self, tier: SandboxTier, policy: SandboxPolicy, runtime: SandboxRuntime, code: str) -> str:
        """What *code* says, after what changed outside came in as before any run."""
        if isinstance(tier, MirrorTier):
            assert () == tier.refresh(policy, runtime)
        with contextlib.closing(GuestChannel(runtime.socket)) as inside:
            ran = inside.run("bash", code, timeout_s=60)
        return f"{ran.stdout}{ran.stderr}"

    def test_a_project_and_mounts_are_seen_where_they_are_to_be_and_written_where_they_may(
        self, tier: SandboxTier, shared: Path
    ) -> None:
        project, read, written = (shared / name for name in ("project", "read", "written"))
        for folder in (project, read, written):
            (folder / "sub").mkdir(parents=True)
            (folder / "sub" / "f").write_text(f"{folder.name}\n")
            for each in (folder, folder / "sub", folder / "sub" / "f"):
                each.chmod(0o777)
        mounts = (Mount(source=str(read)), Mount(source=str(written), target="/srv/deep/w", writable=True))
        policy = SandboxPolicy(session=SessionId("a" * 8), tier=tier.tier, project=str(project), mounts=mounts)
        runtime = tier.create(policy)
        try:
            said = self.ran(tier, policy, runtime, f"cat /project/sub/f {read}/sub/f /srv/deep/w/sub/f")
            assert "project\nread\nwritten\n" == said
            for path in ("/project/sub/f", f"{read}/new"):
                assert "Read-only file system" in self.ran(tier, policy, runtime, f"echo x > {path}")
            self.ran(tier, policy, runtime, "echo more >> /srv/deep/w/sub/f; mkdir /srv/deep/w/own")
            assert "written\nmore\n" == (written / "sub" / "f").read_text()
            assert (written / "own").is_dir()
            (read / "sub" / "f").write_text("edited\n")
            (written / "sub" / "f").write_text("edited too\n")
            (project / "sub" / "f").unlink()
            said = self.ran(tier, policy, runtime, f"cat {read}/sub/f /srv/deep/w/sub/f; echo /project/sub/*")
            assert "edited\nedited too\n/project/sub/*\n" == said
            if tier.keeps_memory:
                slept = tier.pause(policy, runtime, to_disk=True)
                (read / "sub" / "f").write_text("while it slept\n")
                runtime = tier.resume(policy, runtime, slept)
                said = self.ran(tier, policy, runtime, f"cat {read}/sub/f; echo x > {read}/sub/f")
                assert said.startswith("while it slept\n")
                assert "Read-only file system" in said
        finally:
            tier.forget(policy)
        assert (written / "sub" / "f").exists()


class TestOfAJail(OfAJail, FoldersContract):
    pass


class TestOfAMachine(OfAMachine, FoldersContract):
    pass
