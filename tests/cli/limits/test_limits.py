"""`kasmon limits`: what agents reported of their accounts."""

from tests.support.cli.cli_runner import Cli


def test_usage_and_its_end_are_shown_with_the_sessions_that_wait_for_it(kasmon: Cli) -> None:
    assert "No agent has reported a usage limit" in kasmon("limits").out
    kasmon.new("near", "window five_hour 81.5 3600\nsay done")
    kasmon.new("over", "window weekly 100 7200\nlimit")
    assert 0 == kasmon("wait", "near", "--for", "idle", "--timeout", "20").code
    assert 0 == kasmon("wait", "over", "--for", "limited", "--timeout", "20").code

    (account,) = kasmon.json("limits")["accounts"]
    assert ("scripted", None, None) == (account["agent"], account["account"], account["machine"])
    assert {("five_hour", 0.815, False), ("weekly", 1.0, True)} == {
        (each["name"], each["used"], each["reached"]) for each in account["limits"]
    }
    ids = {each["name"]: each["id"] for each in kasmon.json("ls")["sessions"]}
    assert [ids["over"]] == account["parked"]
    assert max(each["resets_at"] for each in account["limits"]) == account["until"]
    forecast = next(each["forecast"] for each in account["limits"] if each["name"] == "five_hour")
    assert "in the first 4 h of this window" in forecast["basis"]

    lines = kasmon("limits", "ls").out.splitlines()
    assert any("five_hour" in line and "82%" in line and "full at" in line for line in lines)
    assert any("weekly" in line and "reached" in line for line in lines)
    assert lines[-1].startswith("scripted: limited until ")
    assert lines[-1].endswith(": over")


def test_a_waiting_session_is_resumed_or_left_as_the_user_requests(kasmon: Cli) -> None:
    kasmon.new("over", "window weekly 100 7200\nlimit")
    assert 0 == kasmon("wait", "over", "--for", "limited", "--timeout", "20").code

    unasked = kasmon("limits", "resume")
    assert (4, True) == (unasked.code, "Pass --yes to resume them." in unasked.err)
    (resumed,) = kasmon.json("limits", "resume", "over", "--prompt", "say back", "--yes")["resumed"]
    assert "say back" == resumed["prompt"]
    assert kasmon("limits").out.splitlines()[-1].endswith(": over (resumes)")

    assert "over: is not resumed by kasmon" in kasmon("limits", "cancel", "over").out
    assert kasmon.json("limits")["resumptions"][resumed["session"]]["is_cancelled"]
    assert "does not wait for a usage limit" in kasmon("limits", "resume", kasmon.new("idle"), "--yes").err
