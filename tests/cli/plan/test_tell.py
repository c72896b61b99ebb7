"""`kasmon tell`, as the agent of a task says it: to a peer, to its wave, into the notes."""

from tests.support.cli.cli_runner import LIMIT_S, Cli
from tests.support.wait import until


def crew(kasmon: Cli) -> list[str]:
    """Three of one wave; their plan need not run."""
    place = ("--wave", "1", "--peers", "3")
    return [kasmon.new(name, "hang", "--task", n, *place) for n, name in (("1", "a"), ("2", "b"), ("3", "c"))]


def test_a_peer_and_a_wave_get_the_message_each_with_a_receipt(kasmon: Cli) -> None:
    teller, b, c = crew(kasmon)
    until(lambda: 3 == len(kasmon.json("ls", "--state", "working")["sessions"]), LIMIT_S)

    to_one = kasmon("tell", "2", "say hello", "--json", KASMON_SESSION=teller).json["receipts"]
    to_all = kasmon("tell", "wave", "-", "--json", given="say hello all", KASMON_SESSION=teller).json["receipts"]

    assert [(b, "queued")] == [(one["session"], one["state"]) for one in to_one]
    assert {b: "queued", c: "queued"} == {one["session"]: one["state"] for one in to_all}
    assert "c: queued" in kasmon("tell", "c", "say again", KASMON_SESSION=teller).out


def test_in_a_wave_the_peer_that_accepts_no_more_is_named_and_the_others_get_the_message(kasmon: Cli) -> None:
    teller, _, _ = crew(kasmon)
    until(lambda: 3 == len(kasmon.json("ls", "--state", "working")["sessions"]), LIMIT_S)
    for _ in range(6):
        assert 0 == kasmon("tell", "b", "say hello", KASMON_SESSION=teller).code

    refused = kasmon("tell", "b", "say hello", KASMON_SESSION=teller)
    wave = kasmon("tell", "wave", "say hello", KASMON_SESSION=teller)

    assert (4, True) == (refused.code, "'b' received 6 peer messages within 60 s" in refused.err)
    assert "b: refused, 'b' received 6 peer messages" in wave.out
    assert "c: queued" in wave.out


def test_outside_of_a_session_there_is_no_peer_and_without_a_plan_no_notes(kasmon: Cli) -> None:
    session = kasmon.new("alone", "say hello")

    assert 2 == kasmon("tell", "wave", "hello").code
    assert "does not belong to a wave" in kasmon("tell", "wave", "hello", KASMON_SESSION=session).err
    assert "does not belong to a plan" in kasmon("tell", "notes", "hello", KASMON_SESSION=session).err
    assert "missing message" in kasmon("tell", "wave", "", KASMON_SESSION=session).err


def test_a_message_is_no_command_of_a_shell_of_the_wave(kasmon: Cli) -> None:
    place = ("--wave", "1", "--peers", "3")
    teller, b = kasmon.new("a", "hang", "--task", "1", *place), kasmon.new("b", "hang", "--task", "2", *place)
    shell = kasmon("new", "sh", "--task", "3", *place, "--", "bash").out.strip()
    for session in (b, shell):
        kasmon.json("wait", session, "--for", "idle,working,unsure", "--timeout", "20")

    wave = kasmon("tell", "wave", "touch executed", "--json", KASMON_SESSION=teller).json["receipts"]
    one = kasmon("tell", "sh", "touch executed", KASMON_SESSION=teller)

    assert [b] == [receipt["session"] for receipt in wave]
    assert (4, True) == (one.code, "'sh' is no agent: a shell would execute the message." in one.err)
    assert [] == kasmon.json("show", shell)["session"]["receipts"]
