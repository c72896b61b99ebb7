"""Registers kasmons in scratch folders with another one as its machines: directly, over ssh, or over NATS."""

import asyncio
import contextlib
import getpass
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from kasmon.demo.fleet import CLUSTER, command_of, start_cluster
from kasmon.errors import UnavailableError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, private_folder, write_private
from kasmon.store.machines import Machine, read_presence, write_machine
from kasmon.supervisor.machines import registration

Transport = Literal["direct", "ssh", "nats"]
"""How a machine is reached: its commands run here, or run by an sshd, or a NATS server on loopback carries them."""
JOIN_S: Final = 60.0
BOX: Final = "box"
"""The ssh destination of each machine."""
PROGRAMS: Final = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"
"""Where sshd is, besides PATH."""


@contextlib.contextmanager
def joined(
    near: Paths, remote: Sequence[Paths], sessions: Sequence[SessionId], transport: Transport = "direct"
) -> Iterator[list[int]]:
    """Register the kasmons in *remote* in that of *near*; yield the pids of the links once it has all *sessions*.

    Raises:
        UnavailableError: if what *transport* requires is missing here.
        TimeoutError: if they are not connected in time.
    """
    machines = {f"m{number}": paths for number, paths in enumerate(remote)}
    with _started_cluster(near, machines) if transport == "nats" else contextlib.nullcontext():
        if transport == "ssh":
            _write_ssh_config(near)
        for name, paths in machines.items():
            machine = Machine(name=name, command=command_of(paths), ssh=BOX if transport == "ssh" else "")
            write_machine(near, Machine(name=name, cluster=CLUSTER) if transport == "nats" else machine, is_new=True)
        registration.start_links(near)
        deadline = time.monotonic() + JOIN_S
        while not {*sessions} <= {each for name in machines for each in read_presence(near, name).sessions}:
            if time.monotonic() > deadline:
                why = "; ".join(filter(None, (read_presence(near, name).why for name in machines)))
                raise TimeoutError(f"the machines were not connected in {JOIN_S:g} s: {why or 'sessions are missing'}.")
            time.sleep(0.05)
        yield [pid for name in machines if (pid := lock_holder(near.machine_lock(name)))]


@contextlib.contextmanager
def _started_cluster(near: Paths, machines: Mapping[str, Paths]) -> Iterator[None]:
    """Run a cluster that *machines* serve their sessions to, and that *near* is an operator of."""
    try:
        processes = asyncio.run(start_cluster(near, machines))
    except ImportError as error:
        raise UnavailableError(
            f"a cluster requires more packages: {error.name} is not installed.",
            hint="`pipx install --force '.[nats-server]'` in kasmon's clone",
        ) from error
    try:
        yield
    finally:
        for each in reversed(processes):
            each.terminate()
            each.wait()


def _write_ssh_config(near: Paths) -> None:
    """Let `BOX` lead from *near* to an sshd of its own, which ssh runs for each connection; it listens nowhere.

    Raises:
        UnavailableError: if sshd cannot be run.
    """
    program, keygen = shutil.which("sshd") or shutil.which("sshd", path=PROGRAMS), shutil.which("ssh-keygen")
    if program is None or keygen is None or shutil.which("ssh") is None:
        raise UnavailableError("'sshd' or 'ssh' is not on PATH.", hint="Install the OpenSSH server and client.")
    folder = private_folder(near.config)
    key, ssh_config, sshd_config = (folder / name for name in ("key", "ssh_config", "sshd_config"))
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_bytes()
    write_private(folder / "known", BOX.encode() + b" " + public)
    write_private(
        sshd_config,
        f"""\
HostKey {key}
AuthorizedKeysFile {key}.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PidFile none
SetEnv PATH={os.environ.get("PATH", os.defpath)}
""".encode(),
    )
    checked = subprocess.run([program, "-t", "-f", sshd_config], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise UnavailableError(f"sshd cannot be run: {checked.stderr.strip()}.")
    write_private(
        ssh_config,
        f"""\
Host {BOX}
 User {getpass.getuser()}
 IdentityFile {key}
 IdentitiesOnly yes
 IdentityAgent none
 UserKnownHostsFile {folder / "known"}
 GlobalKnownHostsFile /dev/null
 ProxyCommand {shlex.join([program, "-i", "-f", str(sshd_config)])}
""".encode(),
    )
    existing = near.config_file.read_bytes() if near.config_file.exists() else b""
    ssh = {"remote": {"ssh": ["ssh", "-F", str(ssh_config)]}}
    write_private(near.config_file, existing + msgspec.toml.encode(ssh))
