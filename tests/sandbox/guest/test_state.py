"""What interpreters hold goes over into another sandbox, name for name; and what must not, is forgotten."""

import base64
import json
from collections.abc import Iterator

import pytest

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import Interpreter
from kasmon.sandbox.guest_client.channel import GuestChannel
from tests.support.sandbox.guest_agent import Agent, temporary
from tests.support.sandbox.tier_agents import TierAgents

CANARY = "kasmon-canary-5d41402abc4b2a76"


@pytest.fixture
def channel(agent: Agent) -> Iterator[GuestChannel]:
    """Fresh interpreters in an agent that others used before."""
    channel = agent.channel()
    for interpreter in ("python", "bash", "node"):
        channel.reset(interpreter)
    yield channel
    channel.close()


@pytest.fixture(scope="module")
def other(agents: TierAgents) -> Iterator[GuestChannel]:
    with agents.agent("other") as agent:
        channel = agent.channel()
        yield channel
        channel.close()


def python(channel: GuestChannel, code: str) -> str:
    ran = channel.run("python", code, timeout_s=20)
    assert "" == ran.stderr
    return ran.stdout


def bash(channel: GuestChannel, code: str) -> str:
    return channel.run("bash", code, timeout_s=20).stdout


def carried(channel: GuestChannel, other: GuestChannel) -> tuple[set[str], set[str]]:
    """What *other* has of *channel* now, and what was lost on the way, by name."""
    for interpreter in ("python", "bash", "node"):
        other.reset(interpreter)
    saved = channel.save_state()
    loaded = other.load_state(saved.content)
    assert set(saved.kept) == set(loaded.kept)
    return set(loaded.kept), set(saved.lost) | set(loaded.lost)


@pytest.mark.core
def test_data_functions_and_classes_of_python_are_restored(channel: GuestChannel, other: GuestChannel) -> None:
    python(
        channel,
        """
import math, collections, dataclasses, abc, os
data = {"list": [1, 2.5, None], "set": {1}, "bytes": b"x", "big": 10 ** 50}
def power(n: int = 2, *, base=3) -> int:
    "Doc."
    return base ** n + len(data["list"]) + math.floor(0.5)
def counter():
    count = 0
    def up():
        nonlocal count
        count += 1
        return count
    def seen():
        return count
    return up, seen
up, seen = counter()
_ = up()
def recursive(n): return n if n == 0 else recursive(n - 1)
square = lambda n: n * n
@dataclasses.dataclass(frozen=True, order=True)
class Point:
    x: int
    y: int = dataclasses.field(default=7)
    def __post_init__(self): assert self.x >= 0
    @property
    def both(self): return self.x + self.y
    @classmethod
    def at(cls, x): return cls(x)
    @staticmethod
    def none(): return 0
class Base(abc.ABC):
    @abc.abstractmethod
    def name(self): ...
class Derived(Base):
    __slots__ = ("s",)
    def __init__(self): super().__init__(); self.s = 1
    def name(self): return "derived"
point = Point(1)
same = [point, point]
derived = Derived()
counts = collections.Counter("aab")
os.environ["OF_THE_CODE"] = "1"
""",
    )
    kept, lost = carried(channel, other)

    names = "data power counter up seen recursive square Point Base Derived point same derived counts math collections"
    assert {f"python: {name}" for name in (*names.split(), "dataclasses", "abc", "os")} == kept
    assert set() == lost
    show = "print(power(), power.__doc__, up(), seen(), recursive(3), square(4))"
    assert "12 Doc. 2 2 0 16\n" == python(other, show)
    assert "8 True True 7 0\n" == python(
        other, "print(point.both, same[0] is point is same[1], Point(1) == point, Point.at(2).y, Point.none())"
    )
    assert "derived 1 True 2\n" == python(
        other, "print(derived.name(), derived.s, isinstance(derived, Base), counts['a'])"
    )
    assert "TypeError\n" == python(other, "try: Base()\nexcept TypeError as error: print(type(error).__name__)")
    assert "Point(x=5, y=7)\n" == python(other, "dataclasses.replace(point, x=5)")
    assert "'1'\n" == python(other, "os.environ['OF_THE_CODE']")


def test_data_that_python_cannot_store_is_named_with_its_type_and_affects_no_other(
    channel: GuestChannel, other: GuestChannel
) -> None:
    python(
        channel,
        """
import threading, socket, enum, subprocess
fine = [1]
generator = (n for n in fine)
lock = threading.Lock()
thread = threading.Thread()
sock = socket.socket(); sock.close()
file = open("/dev/null")
class Colour(enum.Enum):
    RED = 1
red = Colour.RED
holder = {"deep": [lock]}
class Hostile:
    def __reduce__(self): raise RuntimeError("no")
hostile = Hostile()
file.close()
""",
    )
    kept, lost = carried(channel, other)

    assert {
        "python: generator (generator)", "python: lock (lock)", "python: thread (Thread)", "python: sock (socket)",
        "python: file (TextIOWrapper)", "python: Colour (class Colour)", "python: red (Colour)",
        "python: holder (dict)", "python: hostile (Hostile)",
    } == lost  # fmt: skip
    assert {f"python: {name}" for name in ("fine", "threading", "socket", "enum", "subprocess", "Hostile")} == kept
    assert "[1]\n" == python(other, "fine")


@pytest.mark.core
def test_the_state_of_a_shell_is_restored_and_its_jobs_are_named_as_lost(
    channel: GuestChannel, other: GuestChannel
) -> None:
    job = bash(
        channel,
        "declare -A map=([k]='v w'); list=(1 '2 3'); declare -i whole=5; export SHOWN=$'a\\nb'; cd /usr\n"
        "declare -r fixed=1; alias hi='echo hi'; f() { echo \"f $1\"; }; set -o noclobber\n"
        "shopt -s extglob; umask 027\n"
        "trap 'echo usr' USR1; PATH=$PATH:/mine; sleep 60 & echo $!",
    ).strip()
    kept, lost = carried(channel, other)

    assert {f"bash: {name}" for name in ("map", "list", "whole", "SHOWN", "fixed", "f()")} <= kept
    assert {f"bash: {job} (background job)"} == lost
    shown = bash(
        other,
        'echo "${map[k]}" "${list[1]}" $fixed $(umask) $PWD; whole+=1; echo $whole; f x; hi; echo ${PATH##*:}\n'
        "printenv SHOWN; [[ -o noclobber ]] && echo noclobber; kill -USR1 $$; case aab in +(a)b) echo glob ;; esac",
    )
    assert "v w 2 3 1 0027 /usr\n6\nf x\nhi\n/mine\na\nb\nnoclobber\nusr\nglob\n" == shown


def test_plain_data_of_node_is_restored_and_the_rest_is_named_as_lost(
    channel: GuestChannel, other: GuestChannel
) -> None:
    pytest.importorskip("shutil").which("node") or pytest.skip("node is not installed")
    code = (
        "let data = { a: [1, new Map([[1, new Set([2])]])], d: new Date(0), r: /x/g, b: Buffer.from('x'), n: 10n };"
        "let same = data; function f() {} ; class A {} ; let instance = { deep: [new A()] }; let sym = Symbol('s');"
        "let gets = { get x() { return 1 } }; let late = Promise.resolve(1)"
    )
    assert 0 == channel.run("node", code, timeout_s=20).exit_code
    kept, lost = carried(channel, other)

    assert {"node: data", "node: same"} == kept
    assert {
        "node: f (function)", "node: A (class A)", "node: instance (instance of A)", "node: sym (symbol)",
        "node: gets (accessor)", "node: late (instance of Promise)",
    } == lost  # fmt: skip
    shown = other.run("node", "[same === data, data.a[1].get(1).has(2), data.d.getTime(), data.n]", timeout_s=20)
    assert "[ true, true, 0, 10n ]\n" == shown.stdout


def test_an_unused_interpreter_is_not_started_to_be_saved(channel: GuestChannel) -> None:
    assert () == channel.save_state().kept
    assert {0} == {worker.pid for worker in channel.ping("n").workers.values()}


def test_two_simultaneous_saves_have_all_states_and_no_state_is_left_in_a_file(
    agent: Agent, channel: GuestChannel, other: GuestChannel
) -> None:
    """As after a lost connection: the request is sent again while the first is still in progress."""
    python(channel, "fine = 1")
    assert 0 == channel.run("bash", "mkfifo gate; held=2", timeout_s=20).exit_code
    client = agent.connect()
    client.send({"id": "busy", "interpreter": "bash", "code": "cat gate"})
    for name in ("first", "second"):
        client.send({"id": name, "type": "save_state"})
    files = "import os, tempfile\n[name for _, _, names in os.walk(tempfile.gettempdir()) for name in names]"
    client.send({"id": "files", "interpreter": "python", "code": files})
    answer = client.receive()
    assert ("files", True) == (answer["id"], "'python-" not in answer["stdout"]), answer
    client.send({"id": "open", "interpreter": "python", "code": "open('gate', 'w').close()"})
    parts: dict[str, bytes] = {"first": b"", "second": b""}
    kept: dict[str, set[str]] = {}
    while len(kept) < len(parts):
        answer = client.receive()
        if answer.get("type") == "part":
            parts[answer["id"]] += base64.b64decode(answer["data"])
        elif answer["id"] in parts:
            kept[answer["id"]] = {name for each in answer["interpreters"].values() for name in each["kept"]}

    assert {"fine", "held"} <= kept["first"] & kept["second"]
    for content in parts.values():
        assert {"python: fine", "bash: held"} <= set(other.load_state(content).kept)


def test_an_invalid_state_is_refused(channel: GuestChannel) -> None:
    for content in (
        b"",
        b"{}\n",
        b'{"format": 9, "sizes": {}}\n',
        b"\xff" * 100,
        b'{"format": 1, "sizes": {"python": 9}}\n',
    ):
        with pytest.raises(SandboxError, match="not interpreter state"):
            channel.load_state(content)


def test_a_damaged_state_is_lost_and_ends_nothing(channel: GuestChannel) -> None:
    python(channel, "held = 41")
    head = json.dumps({"format": 1, "sizes": {"python": 4, "bash": 5}}).encode()
    loaded = channel.load_state(head + b"\n" + b"none" + b"false")

    assert () == loaded.kept
    assert ["bash", "python"] == sorted(lost.partition(":")[0] for lost in loaded.lost)
    assert "41\n" == python(channel, "held")


def test_python_of_another_version_reports_that_it_cannot_restore_it(channel: GuestChannel) -> None:
    import pickle

    blob = pickle.dumps({"version": (2, 7), "names": b"", "environ": {}, "gone": [], "path": [], "folder": "/"})
    loaded = channel.load_state(json.dumps({"format": 1, "sizes": {"python": len(blob)}}).encode() + b"\n" + blob)

    assert () == loaded.kept
    assert loaded.lost[0].startswith("python: python (it is of Python 2.7, and this is 3.")


def test_a_removed_name_is_in_no_interpreter_and_in_no_checkpoint(channel: GuestChannel) -> None:
    """The canary of a credential: lent to runs, copied by the code, printed, and left in background output."""
    lent = {"TOKEN": CANARY}
    code: dict[Interpreter, str] = {
        "python": "import os\ncopied = os.environ['TOKEN']\nnested = {'a': [copied]}\nos.environ['MINE'] = copied\n"
        "class A: pass\nobject_ = A(); object_.token = copied\nfine = 1\nprint(copied)",
        "bash": 'copied=$TOKEN; list=(a "$TOKEN"); export MINE=$TOKEN; fine=1; (sleep 0.05; echo $TOKEN) & echo $TOKEN',
        "node": "var copied = process.env.TOKEN; var nested = { a: [copied] }; process.env.MINE = copied; var fine = 1",
    }
    for interpreter, text in code.items():
        channel.run(interpreter, text, timeout_s=20, variables=lent)
    bash(channel, "wait")
    purged = channel.forget(["TOKEN"], [CANARY])
    saved = channel.save_state()

    assert {"copied", "nested", "object_", "MINE"} == set(purged["python"])
    assert {"copied", "list", "MINE"} == set(purged["bash"])
    assert {"copied", "nested", "MINE"} == set(purged["node"])
    assert CANARY.encode() not in saved.content
    assert {"python: fine", "bash: fine", "node: fine"} <= set(saved.kept)
    assert not any(temporary(channel).values())
    assert CANARY not in bash(channel, "set; env") + python(channel, "dict(os.environ), globals()")


def test_a_name_with_a_credential_is_not_stored(channel: GuestChannel) -> None:
    python(channel, f"token = {CANARY!r}\ndef uses(): return {CANARY!r}\nfine = 1")
    bash(channel, f"f() {{ echo {CANARY}; }}")
    saved = channel.save_state([CANARY])

    assert CANARY.encode() not in saved.content
    assert ("python: fine",) == saved.kept
    assert {
        "python: token (a credential is in it)",
        "python: uses (a credential is in it)",
        "bash: bash (its state contains a credential)",
    } == set(saved.lost)
