"""A network namespace, joined to this one by a virtual cable: another machine, as far as the network goes."""

import os
import shutil
import signal
import subprocess

import pytest


class NetworkNamespace:
    """Processes that `inside` starts are in it, at `address`. Close it.

    `outside` is this machine's address at the cable.
    Skips the test where there is no such thing: it needs Linux, the program `ip` and root.
    """

    def __init__(self) -> None:
        self._name, self._cable = f"kb{os.getpid()}", f"kb{os.getpid() % 100000}"
        network = f"10.213.{os.getpid() // 64 % 256}.{os.getpid() % 64 * 4}".rpartition(".")
        self.outside, self.address = (f"{network[0]}.{int(network[2]) + number}" for number in (1, 2))
        if shutil.which("ip") is None or os.geteuid() != 0:
            pytest.skip("a network namespace needs the program ip, and root")
        made = subprocess.run(["ip", "netns", "add", self._name], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"a network namespace cannot be made here: {made.stderr.strip()}")
        try:
            self._ip("link", "add", self._cable, "type", "veth", "peer", "name", "cable", "netns", self._name)
            self._ip("addr", "add", f"{self.outside}/30", "dev", self._cable)
            self._ip("link", "set", self._cable, "up")
            for arguments in (f"addr add {self.address}/30 dev cable", "link set cable up", "link set lo up"):
                self._ip("-n", self._name, *arguments.split())
        except BaseException:
            self.close()
            raise

    @property
    def inside(self) -> tuple[str, ...]:
        """The beginning of a command that is to run there."""
        return ("ip", "netns", "exec", self._name)

    def cut(self) -> None:
        """Cut the cable: nothing passes, and no side is told."""
        self._ip("link", "set", self._cable, "down")

    def heal(self) -> None:
        self._ip("link", "set", self._cable, "up")

    def signal_all(self, number: signal.Signals) -> None:
        """Send *number* to all processes there."""
        listed = subprocess.run(["ip", "netns", "pids", self._name], capture_output=True, text=True, check=True)
        for pid in listed.stdout.split():
            os.kill(int(pid), number)

    def close(self) -> None:
        subprocess.run(["ip", "link", "del", self._cable], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self._name], capture_output=True, check=False)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], capture_output=True, check=True)
