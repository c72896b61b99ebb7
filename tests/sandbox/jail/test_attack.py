"""What those inside try against this machine: each attack fails, and gets on where its guard is taken out.

A guard is taken out in this process, by a patch of what bubblewrap is told; the product has no switch for it. No attack
ever runs as root, and none changes this machine where it gets through: it looks, or asks for something harmless.
"""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kasmon.sandbox.jail import seccomp, start, wrap
from kasmon.sandbox.jail.bwrap_arguments import build_arguments
from kasmon.sandbox.shared.filesystem_view import FilesystemView
from kasmon.sandbox.shared.processes import tree
from tests.sandbox.conftest import JailedAgent, open_to_others
from tests.support.wait import until

pytestmark = [pytest.mark.sandboxes, pytest.mark.short]

Make = Callable[..., JailedAgent]
NO_FILTER = b"\x06\x00\x00\x00\x00\x00\xff\x7f"
"""A filter that allows everything."""

PRELUDE = """
import ctypes, errno, os, socket, struct, sys, tempfile
def file(): return os.fsencode(tempfile.mkstemp()[1])
def fresh(): return file() + b".new"
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    done = getattr(libc, name)(*arguments)
    print("got through" if done != -1 else errno.errorcode[ctypes.get_errno()])
def moded(path, number, *arguments):
    done = libc.syscall(number, *arguments)
    said = "done" if done != -1 else errno.errorcode[ctypes.get_errno()]
    path = path or f"/proc/self/fd/{done}"
    is_set = os.path.exists(path) and os.stat(path).st_mode & 0o6000
    print(f"{said}, {'set' if is_set else 'not set'}")
def attempt(act):
    try:
        act()
        print("got through")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


class Attack(NamedTuple):
    """One row of the table."""

    name: str
    code: str
    guarded: str
    """What it says where the guard stands."""
    unguarded: str
    """What it says without."""
    without: Sequence[str] = ()
    """The words that are taken out of what bubblewrap is told."""
    filter_too: bool = False
    """The seccomp filter is taken out, too."""


CALLS = {
    "unshare a user namespace": ("call('unshare', 0x10000000)", "EPERM", "got through", ["--disable-userns"]),
    "be traced": ("call('ptrace', 0, 0, 0, 0)", "EPERM", "got through", []),
    "look for the session's keyring": ("call('syscall', 250, 0, -3, 0)", "EPERM", "got through", []),
    "another execution domain": ("call('personality', 0xffffffff)", "EPERM", "got through", []),
    "read another process": ("call('process_vm_readv', os.getpid(), 0, 0, 0, 0, 0)", "EPERM", "got through", []),
    "compare two processes": ("call('syscall', 312, os.getpid(), os.getpid(), 1, 0, 0)", "EPERM", "got through", []),
    "io_uring": ("call('syscall', 425, 1, ctypes.create_string_buffer(256))", "EPERM", "got through", []),
    "faults of memory in user space": ("call('syscall', 323, 1)", "EPERM", "got through", []),
}
CHANGED = {
    "chmod": "moded(path := file(), 90, {path}, {mode})",
    "fchmod": "moded(path := file(), 91, os.open({path}, os.O_RDWR), {mode})",
    "fchmodat": "moded(path := file(), 268, -100, {path}, {mode})",
    "fchmodat2": "moded(path := file(), 452, -100, {path}, {mode}, 0)",
}
"""System call -> code that changes the mode of a file by it, called by its number."""
CREATED = {
    "open": "moded(path := fresh(), 2, {path}, os.O_CREAT | os.O_WRONLY, {mode})",
    "openat": "moded(path := fresh(), 257, -100, {path}, os.O_CREAT | os.O_WRONLY, {mode})",
    "openat without a name": "moded(b'', 257, -100, b'/tmp', os.O_TMPFILE | os.O_WRONLY, {mode})",
    "openat2": "moded(path := fresh(), 437, -100, {path}, struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, {mode}, 0), 24)",
    "creat": "moded(path := fresh(), 85, {path}, {mode})",
    "mknod": "moded(path := fresh(), 133, {path}, 0o100000 | {mode}, 0)",
    "mknodat": "moded(path := fresh(), 259, -100, {path}, 0o100000 | {mode}, 0)",
}
"""System call -> code that makes a file of a mode by it."""


def set_id() -> Iterator[Attack]:
    """A setuid or setgid file, made by each system call that takes a mode."""
    for name, code in (CHANGED | CREATED).items():
        for mode in ("0o4755", "0o2755", "0o6755"):
            said = "ENOSYS" if name == "openat2" else "done" if name in CHANGED and mode == "0o2755" else "EPERM"
            code_of_mode = code.format(path="path", mode=mode)
            yield Attack(f"{name} {mode}", code_of_mode, f"{said}, not set", "done, set", filter_too=True)


TABLE = [
    *(Attack(name, code, said, without, words, True) for name, (code, said, without, words) in CALLS.items()),
    *set_id(),
    Attack(
        "a user namespace, by the first guard alone",
        "call('unshare', 0x10000000)",
        "EPERM",
        "ENOSPC",  # the second one, --disable-userns, still stands
        filter_too=True,
    ),
    Attack(
        "settings of the kernel that can be written to",
        "print('/proc/sys ro' in [' '.join(line.split()[4:6])[:12] for line in open('/proc/self/mountinfo')])",
        "True",
        "False",
        ["--ro-bind", "/proc/sys", "/proc/sys"],
    ),
    Attack(
        "write to the root of the file system",
        "attempt(lambda: os.mkdir('/planted'))",
        "EROFS",
        "got through",
        ["--remount-ro", "/"],
    ),
    Attack(
        "fill the memory behind /dev",
        "attempt(lambda: os.mkdir('/dev/planted'))",
        "EROFS",
        "got through",
        ["--remount-ro", "/dev"],
    ),
    Attack(
        "another name for the machine",
        "print(socket.gethostname() == 'sandbox')",
        "True",
        "False",
        ["--hostname", "sandbox"],
    ),
]
ALWAYS = {
    "write to a setting of the kernel": (
        "attempt(lambda: os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))",
        "EACCES",  # already because nobody inside is root outside
    ),
    "mount": ("call('mount', b'none', b'/tmp', b'tmpfs', 0, 0)", "EPERM"),
    "chroot": ("call('chroot', b'/tmp')", "EPERM"),
    "be root": ("call('setuid', 0)", "EINVAL"),
    "another host name": ("call('sethostname', b'x', 1)", "EPERM"),
    "a raw socket": ("attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))", "EPERM"),
    "a packet socket": ("attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))", "EAFNOSUPPORT"),
    "a socket to the hypervisor": ("attempt(lambda: socket.socket(40, socket.SOCK_STREAM))", "EAFNOSUPPORT"),
    "a socket of the kernel's ciphers": ("attempt(lambda: socket.socket(38, socket.SOCK_SEQPACKET))", "EAFNOSUPPORT"),
    "a disk": ("attempt(lambda: os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0)))", "EPERM"),
    "passwords": ("attempt(lambda: open('/etc/shadow'))", "ENOENT"),
    "root's home": ("attempt(lambda: os.listdir('/root'))", "ENOENT"),
    "the kernel's devices": ("attempt(lambda: os.listdir('/sys'))", "ENOENT"),
    "write to /etc": ("attempt(lambda: open('/etc/planted', 'w'))", "EROFS"),
    "write to /usr": ("attempt(lambda: open('/usr/planted', 'w'))", "EROFS"),
    "write to what runs inside": ("attempt(lambda: open('/opt/kasmon/main.py', 'w'))", "EROFS"),
    "write to the lock": ("attempt(lambda: open('/run/jail.lock', 'w'))", "EROFS"),
    "a connection of other namespaces": ("call('setns', os.open('/proc/self/ns/net', os.O_RDONLY), 0)", "EPERM"),
}


@contextlib.contextmanager
def unguarded(
    monkeypatch: pytest.MonkeyPatch, words: Sequence[str] = (), *, filter_too: bool = False
) -> Iterator[None]:
    """Jails that are made meanwhile lack these words (`*` is any), and with *filter_too* all that the filter denies."""

    def fewer(looks: FilesystemView) -> list[str]:
        told = build_arguments(looks)
        alike = [told[at : at + len(words)] for at in range(len(told))]
        starts = [at for at, each in enumerate(alike) if len(each) == len(words) and all(map(fnmatch, each, words))]
        assert 1 == len(starts), f"{words} stand {len(starts)} times in what bubblewrap is told"
        return told[: starts[0]] + told[starts[0] + len(words) :]

    with monkeypatch.context() as patch:
        if words:
            patch.setattr(start, "build_arguments", fewer)
            patch.setattr(wrap, "build_arguments", fewer)
        if filter_too:
            patch.setattr(seccomp, "build_filter", lambda machine: NO_FILTER)
        yield


@pytest.fixture(scope="module")
def _is_x86() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the attacks call by the numbers of x86_64")


@pytest.mark.usefixtures("_is_x86")
def test_each_attack_from_the_guest_fails(jailed_agent: Make) -> None:
    jailed = jailed_agent()
    attacks = {each.name: (each.code, each.guarded) for each in TABLE} | ALWAYS
    said = {name: jailed.run(f"{PRELUDE}\n{code}") for name, (code, _) in attacks.items()}

    assert {name: wanted for name, (_, wanted) in attacks.items()} == {
        name: did.out.strip() or did.err.strip() for name, did in said.items()
    }


@pytest.mark.usefixtures("_is_x86")
@pytest.mark.parametrize("attack", TABLE, ids=lambda attack: attack.name)
def test_without_its_guard_the_attack_succeeds(
    jailed_agent: Make, monkeypatch: pytest.MonkeyPatch, attack: Attack
) -> None:
    with unguarded(monkeypatch, attack.without, filter_too=attack.filter_too):
        jailed = jailed_agent()
    did = jailed.run(f"{PRELUDE}\n{attack.code}")

    if did.out.startswith("ENOSYS") or did.out.strip() == attack.guarded:
        pytest.skip(f"this machine's own settings forbid it: {did.out.strip()}")
    assert attack.unguarded == did.out.strip(), did.err


@pytest.mark.parametrize("guarded", [True, False])
def test_the_environment_of_the_creator_is_not_readable_in_the_guest(
    jailed_agent: Make, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    monkeypatch.setenv("CANARY", "sings")
    if not guarded:
        monkeypatch.setattr(start, "ENVIRONMENT", dict(os.environ))
    did = jailed_agent().run("import glob\nfor each in glob.glob('/proc/[0-9]*/environ'): print(open(each).read())")

    assert guarded is ("CANARY" not in did.out), did.err


@pytest.mark.parametrize("guarded", [True, False])
def test_no_open_file_of_the_host_is_inherited(
    jailed_agent: Make, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        popen = subprocess.Popen

        def inheriting(argv: Any, *, pass_fds: Any = (), **more: Any) -> Any:
            for each in pass_fds:
                os.set_inheritable(each, True)
            return popen(argv, **(more | {"close_fds": not pass_fds}))

        monkeypatch.setattr(subprocess, "Popen", inheriting)
    ours = os.memfd_create("ours", 0)
    try:
        os.set_inheritable(ours, True)
        seen = jailed_agent().run(
            "import os\nof = f'/proc/{os.getppid()}/fd/'\nfor each in os.listdir(of): print(os.readlink(of + each))"
        )
    finally:
        os.close(ours)
    files = {line for line in seen.out.splitlines() if not line.startswith(("socket:", "pipe:"))}

    assert guarded is ({"/dev/null", "/memfd:kasmon (deleted)"} == files), seen
    assert guarded is ("/memfd:ours (deleted)" not in files)


@pytest.mark.parametrize("guarded", [True, False])
def test_no_address_outside_is_reached_by_the_network(
    jailed_agent: Make, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without the guard they share our network: they reach what listens on this machine alone, by port and by name."""
    with contextlib.ExitStack() as kept:
        port = kept.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        name = f"kasmon-{os.getpid()}"
        abstract = kept.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{name}")
        abstract.listen()
        if not guarded:
            kept.enter_context(unguarded(monkeypatch, ["--unshare-net"]))
        jailed = jailed_agent()
        by_port = jailed.run(f"{PRELUDE}\nattempt(lambda: socket.create_connection(('127.0.0.1', {port}), 2))")
        by_name = jailed.run(f"{PRELUDE}\nattempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))")

    assert ["got through"] * 2 == [by_port.out.strip(), by_name.out.strip()] or guarded
    assert not guarded or ["ECONNREFUSED"] * 2 == [by_port.out.strip(), by_name.out.strip()]


@pytest.mark.parametrize("guarded", [True, False])
def test_no_process_of_this_machine_is_visible(
    jailed_agent: Make, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    with contextlib.nullcontext() if guarded else unguarded(monkeypatch, ["--unshare-pid"]):
        jailed = jailed_agent()
    did = jailed.run("import os; print(len([name for name in os.listdir('/proc') if name.isdigit()]))")
    if not guarded:  # nobody is first there: they do not end with one of them
        for pid in reversed(tree(jailed.runtime.pid)):
            os.kill(pid, signal.SIGKILL)

    assert guarded is (int(did.out) <= 4), did


def test_a_setuid_program_gives_no_root(jailed_agent: Make) -> None:
    did = jailed_agent().run(
        "import subprocess\n"
        "done = subprocess.run(['/usr/bin/su', '-c', 'id -u'], input='', capture_output=True, text=True)\n"
        "print(done.stdout, open('/proc/self/status').read())"
    )

    assert "NoNewPrivs:\t1" in did.out
    assert "CapEff:\t0000000000000000" in did.out
    assert not did.out.startswith("0")


def test_a_link_in_the_workspace_is_not_followed(jailed_agent: Make, tmp_path: Path) -> None:
    """Whoever measures or removes a workspace outside sees the link, and not what it leads to."""
    big = tmp_path / "big"
    big.mkdir()
    (big / "file").write_bytes(os.urandom(4 << 20))
    jailed = jailed_agent()
    did = jailed.run(f"import os; os.symlink({str(big)!r}, '/workspace/evil')")
    used = jailed.jail.usage(jailed.policy, jailed.runtime)
    jailed.jail.forget(jailed.policy)

    assert 0 == did.code
    assert used.disk_bytes < 1 << 20
    assert (big / "file").stat().st_size == 4 << 20


def test_removing_everything_in_one_jail_leaves_the_other_whole(jailed_agent: Make, shared: Path) -> None:
    project = open_to_others(shared / "project")
    (project / "precious").write_text("here")
    one, other = jailed_agent("a", project=str(project)), jailed_agent("b", project=str(project))
    other.run("open('/workspace/kept', 'w').write('whole')")
    one.run("open('/workspace/own', 'w').write('gone')")
    tops = ["workspace", "project", "home", "etc", "tmp", "run", "dev", "opt", "var", "bin/", "usr/bin", "usr/include"]
    words = ["rm", "-rf", "--no-preserve-root", *(f"/{top}" for top in tops)]  # "/" itself only takes longer

    assert one.run(f"import subprocess; subprocess.run({words}, stderr=subprocess.DEVNULL)").code == 0
    assert not (one.workspace / "own").exists()
    assert "whole" == other.run("print(open('/workspace/kept').read())").out.strip()
    assert "here" == other.run("print(open('/project/precious').read())").out.strip()
    assert (project / "precious").read_text() == "here"
    assert one.run("print(1 + 1)").out.strip() in ("2", "")


def test_killing_every_process_in_the_guest_kills_none_outside(jailed_agent: Make) -> None:
    one, other = jailed_agent("a"), jailed_agent("b")
    with contextlib.suppress(OSError):
        one.run("import os, signal; os.kill(-1, signal.SIGKILL)")

    until(lambda: not one.lives(), what="the end of the jail whose agent was killed")
    assert "2" == other.run("print(1 + 1)").out.strip()


def test_two_jails_listen_on_the_same_port(jailed_agent: Make) -> None:
    code = (
        "import socket, time, os\n"
        "door = socket.create_server(('127.0.0.1', 8000))\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid(); [os.close(handle) for handle in (0, 1, 2)]; door.accept()[0].send({!r}); time.sleep(60)"
    )
    ask = "import socket; print(socket.create_connection(('127.0.0.1', 8000), 5).recv(9).decode())"
    both = jailed_agent("a"), jailed_agent("b")
    for jailed, word in zip(both, (b"one", b"two"), strict=True):
        assert 0 == jailed.run(code.format(word)).code

    assert ["one", "two"] == [jailed.run(ask).out.strip() for jailed in both]
