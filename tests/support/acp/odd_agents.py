"""Agents that do something odd over the Agent Client Protocol, one function each.

python odd_agents.py NAME
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SESSION = "talk-1"
LOG_IN = "log-in"
ONCE = {"optionId": "once", "name": "Allow once", "kind": "allow_once"}
ALWAYS = {"optionId": "always", "name": "Always allow", "kind": "allow_always"}
REJECT = {"optionId": "no", "name": "Reject", "kind": "reject_once"}
MODELS = {"availableModels": [{"modelId": "big", "name": "Big"}, {"modelId": "small"}, 7], "currentModelId": "big"}
MODES = {"availableModes": [{"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}], "currentModeId": "ask"}


def hear() -> dict[str, Any]:
    """What kasmon says next."""
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    message: dict[str, Any] = json.loads(line)
    return message


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def reply(message: dict[str, Any], result: Any) -> None:
    say(id=message["id"], result=result)


def refuse(request: dict[str, Any], code: int, message: str, data: Any = None) -> None:
    say(id=request["id"], error={"code": code, "message": message, "data": data})


def update(**update: Any) -> None:
    say(method="session/update", params={"sessionId": SESSION, "update": update})


def write(text: str) -> None:
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def replay(text: str) -> None:
    update(sessionUpdate="user_message_chunk", content={"type": "text", "text": text})


def introduce(able: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Answer `initialize`; the request after it."""
    reply(hear(), {"protocolVersion": 1, "agentCapabilities": able or {}, **more})
    return hear()


def begin(**session: Any) -> None:
    """A new session, as usual."""
    reply(introduce(), {"sessionId": SESSION, **session})


def turns(end: str = "end_turn") -> None:
    """Echo each prompt."""
    while True:
        prompt = hear()
        if prompt["method"] == "session/prompt":
            write(prompt["params"]["prompt"][0]["text"])
            reply(prompt, {"stopReason": end})


def ask(number: Any, options: list[Any], **call: Any) -> None:
    tool = {"toolCallId": "call-1", "title": "rm -r /", "kind": "execute", "rawInput": {"command": "rm -r /"}, **call}
    params = {"sessionId": SESSION, "toolCall": tool, "options": options}
    say(id=number, method="session/request_permission", params=params)


# Beginnings


def plain() -> None:
    begin()
    turns()


def silent() -> None:
    print("waiting for the moon", file=sys.stderr, flush=True)
    while True:
        hear()


def dies() -> None:
    hear()
    print("no such model, and the key is", os.environ.get("ODD_KEY", "unknown"), file=sys.stderr, flush=True)
    sys.exit(3)


def other_program() -> None:
    print("usage: odd [--help]", flush=True)


def from_the_future() -> None:
    reply(hear(), {"protocolVersion": 2})
    hear()


def not_introduced() -> None:
    reply(hear(), {"hello": "there"})
    hear()


def logged_out() -> None:
    methods = [
        {"id": "web", "name": "Log in with a browser", "description": "Opens a page"},
        {"id": "key", "name": "API key", "type": "env_var", "vars": [{"name": "ODD_API_KEY"}]},
    ]
    refuse(introduce(authMethods=methods), -32000, "Authentication required")
    hear()


def logged_out_for_terminals() -> None:
    """Has a log-in in a terminal for a client that announces one, and another that hides what it runs."""
    first = hear()
    assert first["params"]["clientCapabilities"]["auth"]["terminal"]
    methods = [
        {"id": "term", "name": "In a terminal", "type": "terminal", "args": ["auth", "log in"], "env": {"ODD": "1"}},
        {"id": "odd", "name": "Elsewhere", "type": "terminal", "args": ["x\u202ey"]},
    ]
    reply(first, {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": methods})
    refuse(hear(), -32000, "Authentication required")
    hear()


def logged_out_the_older_way() -> None:
    """Has a log-in in a terminal as agents had it before the protocol did."""
    first = hear()
    assert first["params"]["clientCapabilities"]["_meta"]["terminal-auth"]
    older = {"command": "odd", "args": ["auth", "login"], "env": {"ODD": "1", "n": 2}, "label": "Odd"}
    methods = [
        {"id": "half", "name": "Half", "_meta": {"terminal-auth": {"command": "odd", "args": [7]}}},
        {"id": "odd", "name": "With odd", "description": "Run it", "_meta": {"terminal-auth": older}},
    ]
    reply(first, {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": methods})
    refuse(hear(), -32000, "Authentication required")
    hear()


def log_in_here() -> list[dict[str, Any]]:
    """The methods of an agent whose log-in in a terminal is `log_in`."""
    return [{"id": "term", "name": "In a terminal", "type": "terminal", "args": [LOG_IN], "env": {"ODD": "1"}}]


def log_in() -> None:
    """Write a file; fail where `no-account` is."""
    if Path("no-account").exists():
        sys.exit(1)
    Path("account").write_text(os.environ["ODD"])


def logs_in() -> None:
    """Works only where its log-in has written the file."""
    first = introduce({"loadSession": True}, authMethods=log_in_here())
    if not Path("account").exists():
        refuse(first, -32000, "Authentication required")
        hear()
    reply(first, {"sessionId": SESSION})
    turns()


def is_logged_out_later() -> None:
    """Begins without an account, and needs one for a turn."""
    first = introduce({"loadSession": True}, authMethods=log_in_here())
    if first["method"] == "session/load":
        replay("hello")
    reply(first, {"sessionId": SESSION})
    while not Path("account").exists():
        message = hear()
        if not Path("account").exists():
            refuse(message, -32000, "Authentication required")
    turns()


def closes() -> None:
    """Notes what it hears after its turn."""
    reply(introduce({"sessionCapabilities": {"close": {}}}), {"sessionId": SESSION})
    prompt = hear()
    reply(prompt, {"stopReason": "end_turn"})
    last = hear()
    Path("heard").write_text(f"{last['method']} {last['params']['sessionId']}")
    reply(last, {})
    hear()


def nameless() -> None:
    reply(introduce(), {"ok": True})
    hear()


def choosy() -> None:
    """Takes models and modes, and refuses the mode `plan`."""
    begin(models=MODELS, modes=MODES)
    while True:
        message = hear()
        match message["method"]:
            case "session/set_model":
                reply(message, {})
            case "session/set_mode":
                refuse(message, -32603, "Internal error", {"details": "not in this folder"})
            case "session/prompt":
                reply(message, {"stopReason": "end_turn"})


def fast(is_on: bool) -> list[dict[str, Any]]:
    return [
        {"id": "fast", "name": "Fast mode", "description": "Less\nthinking", "type": "boolean", "currentValue": is_on},
        {"id": "quiet", "name": "Quiet", "type": "boolean", "currentValue": True},
        {"id": "half", "name": "Half", "type": "boolean", "currentValue": "perhaps"},
    ]


def switches() -> None:
    """Has options that are on or off for a client that shows them; it turns `quiet` neither on nor off."""
    first = hear()
    assert {} == first["params"]["clientCapabilities"]["session"]["configOptions"]["boolean"]
    reply(first, {"protocolVersion": 1, "agentCapabilities": {}})
    reply(hear(), {"sessionId": SESSION, "configOptions": fast(False), "models": MODELS})
    while True:
        message = hear()
        match message["method"]:
            case "session/set_model":
                reply(message, {})
            case "session/set_config_option" if message["params"]["configId"] == "fast":
                assert "boolean" == message["params"]["type"]
                reply(message, {"configOptions": fast(message["params"]["value"])})
            case "session/set_config_option":
                refuse(message, -32603, "Internal error", {"details": "not now"})
            case "session/prompt":
                update(sessionUpdate="config_option_update", configOptions=[])
                reply(message, {"stopReason": "end_turn"})


def tells_its_environment() -> None:
    begin()
    prompt = hear()
    write(json.dumps(dict(os.environ)))
    reply(prompt, {"stopReason": "end_turn"})
    hear()


# Conversations that go on


def forgetful() -> None:
    reply(introduce({"loadSession": True}), {})
    turns()


def remembers_others() -> None:
    load = introduce({"loadSession": True})
    replay("something else")
    reply(load, {})
    turns()


def has_a_long_history() -> None:
    load = introduce({"loadSession": True})
    for number in range(700):
        content = {"type": "text", "text": f"prompt {number}"}
        update(sessionUpdate="user_message_chunk", messageId=f"m{number}", content=content)
    reply(load, {})
    turns()


def replays_late() -> None:
    reply(introduce({"loadSession": True}), {})
    replay("tidy up")
    write("I have tidied up.")
    update(sessionUpdate="tool_call", toolCallId="old", title="ls", kind="execute", status="completed")
    turns()


def resumes_only() -> None:
    reply(introduce({"sessionCapabilities": {"resume": {}, "list": {}}}), {})
    reply(hear(), {"sessions": [{"sessionId": "other", "cwd": "/"}], "nextCursor": "2"})
    reply(hear(), {"sessions": [{"sessionId": SESSION, "cwd": "/"}]})
    turns()


def forks() -> None:
    """Copies conversations; a copy is replayed before it is answered, as opencode does."""
    first = introduce({"loadSession": True, "sessionCapabilities": {"fork": {}}})
    if first["method"] != "session/fork":
        reply(first, {"sessionId": SESSION})
        turns()
    copy = f"{first['params']['sessionId']}-copy"

    def tell(**update: Any) -> None:
        say(method="session/update", params={"sessionId": copy, "update": update})

    tell(sessionUpdate="user_message_chunk", content={"type": "text", "text": "hello"})
    tell(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "hello"})
    reply(first, {"sessionId": copy})
    while True:
        prompt = hear()
        if prompt["method"] == "session/prompt":
            tell(sessionUpdate="agent_message_chunk", content=prompt["params"]["prompt"][0])
            reply(prompt, {"stopReason": "end_turn"})


def forks_nothing() -> None:
    """Calls the conversation itself a copy of it."""
    reply(introduce({"sessionCapabilities": {"fork": {}}}), {"sessionId": SESSION})
    hear()


def refuses_to_fork() -> None:
    refuse(introduce({"sessionCapabilities": {"fork": {}}}), -32603, "Internal error", {"details": "disk full"})
    hear()


def deletes() -> None:
    """Notes what it is to delete."""
    message = introduce({"sessionCapabilities": {"delete": {}}})
    if message["method"] == "session/new":
        reply(message, {"sessionId": SESSION})
        turns()
    Path("deleted").write_text(f"{message['method']} {message['params']['sessionId']} {os.environ.get('ODD_KEY', '')}")
    reply(message, {})
    hear()


def refuses_to_delete() -> None:
    message = introduce({"sessionCapabilities": {"delete": {}}})
    if message["method"] == "session/new":
        reply(message, {"sessionId": SESSION})
        turns()
    refuse(message, -32603, "Internal error", {"details": "it is shared"})
    hear()


def lists() -> None:
    """Lists its conversations on two pages, odd ones among them, and those of every folder whatever is asked."""
    first = introduce({"loadSession": True, "sessionCapabilities": {"list": {}}})
    if first["method"] == "session/load":
        replay("tidy up")
        write("I have ")
        write("tidied up.")
        update(sessionUpdate="tool_call", toolCallId="old", title="ls", kind="execute", status="completed")
        replay("thanks")
        reply(first, {})
        turns()
    folder = str(Path.cwd())
    odd = [
        {"sessionId": "talk-2", "cwd": folder, "title": "red \x1b[31m\u202etitle\nof two lines", "updatedAt": "never"},
        {"sessionId": "talk\u202e-3", "cwd": folder},
        {"sessionId": "--yolo", "cwd": folder},
        {"sessionId": "", "cwd": folder},
        {"title": "no id"},
        7,
    ]
    elsewhere = {"sessionId": "talk-4", "cwd": "/elsewhere", "title": "far away", "updatedAt": "2026-11-30T09:00:00Z"}
    reply(first, {"sessions": [*odd, elsewhere], "nextCursor": "page 2"})
    second = hear()
    assert second["params"]["cursor"] == "page 2"
    assert second["params"].get("cwd") == first["params"].get("cwd")
    tidy = {"sessionId": SESSION, "cwd": folder, "title": "tidy up", "updatedAt": "2026-11-30T10:00:00Z"}
    reply(second, {"sessions": [tidy, odd[0]]})
    hear()


def lists_none() -> None:
    reply(introduce({"sessionCapabilities": {"list": {}}}), {"sessions": []})
    hear()


def lists_for_ever() -> None:
    """Has always another page, with the same cursor."""
    message = introduce({"sessionCapabilities": {"list": {}}})
    while True:
        reply(message, {"sessions": [{"sessionId": SESSION, "cwd": str(Path.cwd())}], "nextCursor": "more"})
        message = hear()


def lists_very_many() -> None:
    message = introduce({"sessionCapabilities": {"list": {}}})
    number = 0
    while True:
        page = [{"sessionId": f"talk-{number + each}", "cwd": str(Path.cwd())} for each in range(100)]
        number += 100
        reply(message, {"sessions": page, "nextCursor": str(number)})
        message = hear()


def lists_nonsense() -> None:
    reply(introduce({"sessionCapabilities": {"list": {}}}), {"sessions": "many"})
    hear()


def lists_after_a_log_in() -> None:
    methods = [{"id": "web", "name": "Log in with a browser"}]
    refuse(introduce({"sessionCapabilities": {"list": {}}}, authMethods=methods), -32000, "Authentication required")
    hear()


def dies_before_it_lists() -> None:
    introduce({"sessionCapabilities": {"list": {}}})
    print("out of memory", file=sys.stderr, flush=True)
    sys.exit(3)


def knows_nothing() -> None:
    refuse(introduce({"loadSession": True}), -32603, "Internal error", {"details": "No previous sessions found."})
    hear()


# Things said


def noisy() -> None:
    begin()
    prompt = hear()
    print("a banner\n[1, 2]\n{'half': \n\xff\n" + "[" * 100_000, flush=True)
    write("still here")
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def half_a_line() -> None:
    begin()
    hear()
    sys.stdout.write('{"jsonrpc": "2.0", "method": "session/upd')
    sys.stdout.flush()


def wordy() -> None:
    begin()
    prompt = hear()
    write("x" * 10_000_000)
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def flood() -> None:
    begin()
    prompt = hear()
    for number in range(3000):
        write(f"{number} ")
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def newer() -> None:
    """Says much that nobody knows yet; its last message tells how its request was answered."""
    begin()
    prompt = hear()
    for _ in range(3):
        update(sessionUpdate="hologram", shape="cube")
        say(method="session/sing", params={"song": "la"})
        say(id=f"q{_}", method="moon/phase", params={})
        answer = hear()
    update(sessionUpdate="agent_message_chunk", content={"type": "smell"})
    say(method="session/update", params={"sessionId": "another", "update": {"sessionUpdate": "plan", "entries": []}})
    write(str(answer["error"]["code"]))
    reply(prompt, {"stopReason": "enlightenment"})
    hear()


def writes_by_us() -> None:
    """Asks for what kasmon has said it does not do."""
    begin()
    prompt = hear()
    params = {"sessionId": SESSION, "path": str(Path("written").resolve()), "content": "x"}
    codes = []
    for number, method in enumerate(("fs/write_text_file", "fs/read_text_file", "terminal/create")):
        say(id=number, method=method, params=params)
        codes.append(hear()["error"]["code"])
    write(str(codes))
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def speaks_unasked() -> None:
    begin()
    write("By the way, ")
    write("hello.")
    hear()


# Permissions


def odd_question() -> None:
    begin()
    prompt = hear()
    say(id=7, method="session/request_permission", params={"sessionId": SESSION, "options": "many"})
    answer = hear()
    write(str(answer["error"]["code"]))
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def know(number: Any, **more: Any) -> None:
    """Ask for a colour, as a form."""
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}, "n": {"type": "integer"}},
    }
    params = {"sessionId": SESSION, "mode": "form", "message": "Which colour?", "requestedSchema": schema, **more}
    say(id=number, method="elicitation/create", params=params)


def curious() -> None:
    begin()
    prompt = hear()
    know(7)
    answer = hear()
    write(json.dumps(answer["result"], sort_keys=True))
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def has_an_address() -> None:
    begin()
    prompt = hear()
    know(7, mode="url", url="https://example.org/sign-in", elicitationId="e1")
    answer = hear()
    say(method="elicitation/complete", params={"elicitationId": "e1"})
    write(json.dumps(answer["result"], sort_keys=True))
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def mumbles() -> None:
    begin()
    prompt = hear()
    know(7, message=None)
    write(str(hear()["error"]["code"]))
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def curious_too_early() -> None:
    first = introduce()
    know(7)
    action = hear()["result"]["action"]
    reply(first, {"sessionId": SESSION})
    prompt = hear()
    write(action)
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def takes_a_form_back() -> None:
    begin()
    prompt = hear()
    know("q1")
    say(method="$/cancel_request", params={"requestId": "q1"})
    hear()
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def stays_curious() -> None:
    """Its message tells what it hears when its turn is to end, in order."""
    begin()
    prompt = hear()
    know(7)
    write(" ".join(message.get("method") or message["result"]["action"] for message in (hear(), hear())))
    reply(prompt, {"stopReason": "cancelled"})
    hear()


def only_always() -> None:
    begin()
    prompt = hear()
    ask(7, [ALWAYS, {"optionId": "x", "name": "Maybe", "kind": "perhaps"}])
    write(json.dumps(hear()["result"]["outcome"]))
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def changes_its_mind() -> None:
    """It asks for one command, says while that waits that it is another one, and runs what was allowed."""
    begin()
    message = hear()
    ask(7, [ONCE, REJECT], title="make", rawInput={"command": "make"})
    update(sessionUpdate="tool_call_update", toolCallId="call-1", status="pending")
    update(sessionUpdate="tool_call_update", toolCallId="call-1", title="rm -rf /", rawInput={"command": "rm -rf /"})
    write(json.dumps(hear()["result"]["outcome"]))
    reply(message, {"stopReason": "end_turn"})
    hear()


def explains_itself() -> None:
    """It asks for a command and says, while that waits, what it is for and where it would run anyway."""
    begin()
    message = hear()
    ask(7, [ONCE, REJECT], title="make", rawInput={"command": "make"})
    command = {"command": "make", "description": "Builds it", "cwd": str(Path.cwd())}
    update(sessionUpdate="tool_call_update", toolCallId="call-1", status="in_progress", title="make", rawInput=command)
    update(sessionUpdate="plan", entries=[{"content": "explained", "status": "pending", "priority": "low"}])
    write(json.dumps(hear()["result"]["outcome"]))
    reply(message, {"stopReason": "end_turn"})
    hear()


def takes_it_back() -> None:
    begin()
    prompt = hear()
    ask("q1", [ONCE, REJECT])
    say(method="$/cancel_request", params={"requestId": "q1"})
    hear()
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def does_not_wait() -> None:
    begin()
    prompt = hear()
    ask(7, [ONCE, REJECT])
    update(sessionUpdate="tool_call_update", toolCallId="call-1", status="failed")
    hear()
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def ends_its_turn() -> None:
    begin()
    prompt = hear()
    ask(7, [ONCE, REJECT])
    reply(prompt, {"stopReason": "end_turn"})
    while True:  # the question is answered all the same; it ends when nobody speaks to it any more
        hear()


def stubborn() -> None:
    """Asks again while it is told to cancel; its message tells what it heard, in order."""
    begin()
    prompt = hear()
    ask(7, [ONCE, REJECT])
    first = hear()
    ask(8, [ONCE, REJECT])
    second, third = hear(), hear()
    outcomes = [message.get("method") or message["result"]["outcome"]["outcome"] for message in (first, second, third)]
    write(" ".join(outcomes))
    reply(prompt, {"stopReason": "cancelled"})
    hear()


# Endings


def done_whatever_happens() -> None:
    """Calls a turn that was cancelled done, and the next one, which nobody cancels."""
    begin()
    prompt = hear()
    write("at work")
    hear()
    reply(prompt, {"stopReason": "end_turn"})
    turns()


def goes_on() -> None:
    """Hears that its turn is to end, and works on for as long as it likes."""
    begin()
    prompt = hear()
    write("at work")
    hear()
    time.sleep(0.3)
    write("and still at work")
    reply(prompt, {"stopReason": "end_turn"})
    turns()


def done_before() -> None:
    """Has ended its turn before it hears of its end, and leaves a file that says so."""
    begin()
    prompt = hear()
    write("at work")
    while not Path("end").exists():
        time.sleep(0.01)
    reply(prompt, {"stopReason": "end_turn"})
    Path("ended").touch()
    turns()


def overloaded() -> None:
    begin()
    refuse(hear(), 429, '{"error": {"code": 429, "message": "too many tokens"}}')
    hear()


def out_of_words() -> None:
    begin()
    reply(hear(), {"stopReason": "max_tokens"})
    hear()


def tells_its_key() -> None:
    begin()
    refuse(hear(), -32603, f"Internal error: the key {os.environ['ODD_KEY']} is wrong")
    hear()


def answers() -> None:
    """A watcher that allows the request of its prompt, with kasmon's own command, and writes what that printed."""
    kasmon = (sys.executable, "-P", "-m", "kasmon")
    begin()
    prompt = hear()
    number = prompt["params"]["prompt"][0]["text"].partition("it waits for an answer (")[2].partition(")")[0]
    inbox = json.loads(subprocess.run([*kasmon, "inbox", "--json"], capture_output=True, check=True).stdout)
    digest = next(each["digest"] for each in inbox["requests"] if each["id"] == number)
    ran = subprocess.run([*kasmon, "answer", number, "allow", "--digest", digest], capture_output=True, text=True)
    write(ran.stdout + ran.stderr)
    reply(prompt, {"stopReason": "end_turn"})
    hear()


def hangs_up() -> None:
    begin()
    hear()
    os.close(1)
    while True:
        time.sleep(60)


def has_a_child() -> None:
    begin()
    prompt = hear()
    child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    write(str(child.pid))
    reply(prompt, {"stopReason": "end_turn"})
    hear()
    hear()


if __name__ == "__main__":
    globals()["log_in" if sys.argv[2:] == [LOG_IN] else sys.argv[1]]()
