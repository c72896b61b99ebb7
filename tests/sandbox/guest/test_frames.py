"""What the agent inside answers, frame by frame: first exactly as the seed says, then to those who send nonsense."""

import socket
from collections.abc import Iterator

import pytest

from kasmon.sandbox.guest.frames import LIMIT_BYTES, FrameReader, FrameTooLargeError, pack_json
from kasmon.sandbox.guest.turn import TruncatingBuffer
from tests.support.sandbox.guest_agent import Agent, Raw
from tests.support.sandbox.tier_agents import TierAgents
from tests.support.wait import until


@pytest.fixture
def client(agent: Agent) -> Raw:
    return agent.connect()


@pytest.fixture(autouse=True)
def _hang_up(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "agent" in request.fixturenames:
        request.getfixturevalue("agent").hang_up()


@pytest.mark.core
def test_a_request_in_the_specified_form_gets_the_specified_answer(client: Raw) -> None:
    said = client.ask(id="req-123", type="execute", interpreter="python", code="x = 42\nprint(x)")

    assert {"id": "req-123", "stdout": "42\n", "stderr": "", "exit_code": 0}.items() <= said.items()


def test_a_second_request_finds_what_the_first_one_left_and_without_a_type_bash_runs_it(client: Raw) -> None:
    client.ask(id="1", type="execute", interpreter="python", code="seen = 7")
    assert "7\n" == client.ask(id="2", type="execute", interpreter="python", code="print(seen)")["stdout"]

    assert "GNU" in client.ask(id="1", code="set -o posix 2>&1; echo GNU $BASH_VERSION")["stdout"]


def test_an_unknown_interpreter_is_the_specified_error(client: Raw) -> None:
    said = client.ask(id="9", type="execute", interpreter="cobol", code="x")

    assert ("9", "", "Unknown interpreter: cobol", 1) == tuple(
        said[key] for key in ("id", "stdout", "stderr", "exit_code")
    )


@pytest.mark.parametrize(
    "data",
    [b"{", b"", b"\xff\xfe", b"[1]", b"null", b'"x"', b"[" * 100_000],
    ids=["half", "empty", "no text", "a list", "null", "a text", "deep"],
)
def test_an_invalid_json_object_gets_the_specified_error_and_the_connection_continues(client: Raw, data: bytes) -> None:
    client.send_bytes(data)
    said = client.receive()

    assert ("", 1) == (said["stdout"], said["exit_code"])
    assert said["stderr"]
    assert "ok\n" == client.ask(id="1", code="echo ok")["stdout"]


@pytest.mark.parametrize(
    "request_",
    [
        {"interpreter": "python"},
        {"interpreter": "python", "code": 3},
        {"interpreter": ["python"], "code": "1"},
        {"interpreter": "python", "code": "1", "variables": {"A=B": "x"}},
        {"interpreter": "python", "code": "1", "variables": {"A": 3}},
        {"interpreter": "python", "code": "1", "variables": {"A": "\0"}},
        {"interpreter": "python", "code": "1", "timeout_s": -1},
        {"interpreter": "python", "code": "1", "timeout_s": True},
        {"type": "no such"},
        {"type": {}},
        {"type": "write_volatile", "path": "here", "data": ""},
        {"type": "write_volatile", "path": "/proc/none/x", "data": ""},
        {"type": "write_volatile", "path": "/tmp/x", "data": "!"},
        {"type": "probe", "port": 70000},
        {"type": "spawn"},
        {"type": "load_state"},
        {"type": "forget", "names": ["a b"], "values": []},
        {"type": "interrupt"},
    ],
    ids=str,
)
def test_an_invalid_request_is_refused_without_effect(client: Raw, request_: dict[str, object]) -> None:
    said = client.ask(id="5", **request_)

    assert ("5", 1, True) == (said["id"], said["exit_code"], bool(said["stderr"]))
    assert "ok\n" == client.ask(id="6", code="echo ok")["stdout"]


@pytest.mark.core
def test_an_oversized_frame_is_refused_before_it_arrives_and_ends_only_that_connection(agent: Agent) -> None:
    client = agent.connect()
    client.socket.sendall((LIMIT_BYTES + 1).to_bytes(4, "big") + b"x")

    assert "too large" in client.receive()["stderr"]
    assert b"" == client.socket.recv(1)
    assert "ok\n" == agent.connect().ask(code="echo ok")["stdout"]


def test_a_partial_frame_of_one_client_delays_no_other(agent: Agent) -> None:
    half = agent.connect()
    half.socket.sendall(b"\0\0")

    assert "ok\n" == agent.connect().ask(code="echo ok")["stdout"]

    half.socket.sendall(b"\0\x14" + b'{"code": ')
    half.socket.shutdown(socket.SHUT_WR)
    assert b"" == half.socket.recv(1)


def test_a_frame_that_comes_byte_by_byte_is_a_frame(client: Raw) -> None:
    data = b'{"id": "1", "code": "echo slow"}'
    for byte in len(data).to_bytes(4, "big") + data:
        client.socket.sendall(bytes([byte]))

    assert "slow\n" == client.receive()["stdout"]


@pytest.mark.core
def test_twenty_clients_get_their_own_answers(agent: Agent) -> None:
    clients = [agent.connect() for _ in range(20)]
    for number, client in enumerate(clients):
        client.send({"id": str(number), "interpreter": ("python", "bash")[number % 2], "code": f"echo = {number}"})
        client.send({"id": f"+{number}", "interpreter": "python", "code": f"print({number})"})
    said = [{each["id"]: each["stdout"] for each in (client.receive(), client.receive())} for client in clients]

    assert [f"{number}\n" for number in range(20)] == [answers[f"+{number}"] for number, answers in enumerate(said)]


def test_a_client_that_leaves_during_a_run_does_not_end_it(agent: Agent) -> None:
    leaving, staying = agent.connect(), agent.connect()
    leaving.send({"id": "1", "interpreter": "bash", "code": "sleep 0.2; left=behind", "began": True})
    assert "began" == leaving.receive()["type"]
    leaving.close()

    assert "behind\n" == staying.ask(id="2", interpreter="bash", code="echo $left")["stdout"]


@pytest.mark.core
def test_a_client_that_does_not_read_delays_no_other_and_gets_its_answer_later(agent: Agent) -> None:
    slow, quick = agent.connect(), agent.connect()
    code = "head -c 20000000 /dev/zero; left=1"
    slow.send({"id": "1", "interpreter": "bash", "code": code, "stream": True, "cap": 100, "began": True})
    assert "began" == slow.receive()["type"]

    assert "1\n" == quick.ask(id="2", interpreter="bash", code="echo $left")["stdout"]
    live = 0
    while (message := slow.receive())["type"] == "stream":
        live += len(message["data"])
    assert 20_000_000 - 100 == message["omitted"]
    assert 0 < live < 5_000_000


def test_bash_runs_while_python_is_busy(agent: Agent) -> None:
    busy, free = agent.connect(), agent.connect()
    busy.send({"id": "1", "interpreter": "python", "code": "import time; time.sleep(0.5); print('python')"})

    assert "bash\n" == free.ask(id="2", interpreter="bash", code="echo bash")["stdout"]
    busy.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        busy.socket.recv(1)
    busy.socket.settimeout(5)
    assert "python\n" == busy.receive()["stdout"]


def test_one_client_too_many_is_refused_and_the_others_are_served(agents: TierAgents) -> None:
    with agents.spare() as agent:
        crowd = [connected(agent) for _ in range(300)]
        for client in crowd[:3]:
            assert "ok\n" == client.ask(code="echo ok")["stdout"]
        assert b"" == crowd[-1].socket.recv(1)
        crowd[5].close()

        until(lambda: gets_in(agent))


def connected(agent: Agent) -> Raw:
    """A client, as soon as the agent has taken enough of those that wait before it."""

    def connect() -> Raw | None:
        try:
            return agent.connect()
        except BlockingIOError:
            return None

    return until(connect)


def gets_in(agent: Agent) -> bool:
    try:
        return bool(agent.connect().ask(code="echo ok")["stdout"] == "ok\n")
    except (AssertionError, OSError):
        return False


def test_runs_of_one_interpreter_are_executed_in_order(client: Raw) -> None:
    client.ask(interpreter="python", code="order = []")
    for number in range(5):
        code = f"import time; time.sleep({0.02 * (5 - number)}); order.append({number})"
        client.send({"id": number, "interpreter": "python", "code": code})

    assert [0, 1, 2, 3, 4] == [client.receive()["id"] for _ in range(5)]
    assert "[0, 1, 2, 3, 4]\n" == client.ask(interpreter="python", code="order")["stdout"]


@pytest.mark.core
def test_one_run_too_many_is_refused_with_the_reason(agent: Agent) -> None:
    client = agent.connect()
    client.send({"id": "first", "interpreter": "bash", "code": "sleep 0.3"})
    for number in range(70):
        client.send({"id": number, "interpreter": "bash", "code": ":"})
    said = [client.receive() for _ in range(71)]

    refused = [each for each in said if each["exit_code"]]
    assert [64, 65, 66, 67, 68, 69] == [each["id"] for each in refused]
    assert "busy" in refused[0]["stderr"]


def test_input_is_split_into_frames_at_any_cut() -> None:
    frames, data, whole = FrameReader(), pack_json({"a": 1}) + pack_json({}) + pack_json({"b": "ä"}), list[bytes]()
    for at in range(0, len(data), 3):
        whole += frames.feed(data[at : at + 3])

    assert [b'{"a":1}', b"{}", b'{"b":"\\u00e4"}'] == whole


def test_no_oversized_data_is_packed_as_json() -> None:
    with pytest.raises(FrameTooLargeError):
        pack_json({"a": "x" * LIMIT_BYTES})


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_the_count_of_the_omitted_part_is_exact_and_no_character_is_cut(step: int) -> None:
    data = ("€" * 5_000 + "ü" + "x" * 33).encode()
    keep = TruncatingBuffer(1000)
    for at in range(0, len(data), step):
        keep.add(data[at : at + step])
    text, omitted = keep.text()
    head, gap, tail = text.split("\n")

    assert "\N{REPLACEMENT CHARACTER}" not in text
    assert len(data) == len(head.encode()) + omitted + len(tail.encode())
    assert f"[... {omitted} bytes omitted here ...]" == gap
    assert 990 < len(head.encode()) + len(tail.encode()) <= 1000


def test_output_that_fits_is_whole_also_if_it_is_not_text() -> None:
    keep = TruncatingBuffer(10)
    keep.add(b"\xff\xe2\x82")
    keep.add(b"\xac12345")

    assert ("\N{REPLACEMENT CHARACTER}€12345", 0) == keep.text()
