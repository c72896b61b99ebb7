"""A program that speaks as `claude` does, as far as a test needs it: `fake_claude.py MISDEED [FLAGS]`.

A prompt is a script, a step a line: `say TEXT`, `think TEXT`, `ask COMMAND`, `question INPUT`, `elicit REQUEST` (an MCP
server's; says how it was answered), `tool NAME JSON => OUTPUT`, `hang`, `crash CODE` or `crash SIGKILL`, `raw LINE`
(written as it is), `half` (of a line), `huge BYTES`, `flood PIECES`.
Standard library only: it starts quickly.
"""

import json
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

CONVERSATION = next(
    (flag.partition("=")[2] for flag in sys.argv if flag.startswith(("--session-id=", "--resume="))), ""
)
ANSWER = {
    "models": [{"value": "sonnet", "resolvedModel": "claude-sonnet-9"}, {"value": "opus", "supportsAutoMode": True}],
    "account": {"tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY", "apiProvider": "firstParty"},
    "claude_code_version": "2.1.330",
    "current_permission_mode": "default",
}
MISDEED = sys.argv[1]


class TurnOverError(Exception):
    """The turn is over."""


def tell(**message: Any) -> None:
    sys.stdout.write(json.dumps({"session_id": CONVERSATION, **message}) + "\n")
    sys.stdout.flush()


def state(name: str) -> None:
    tell(type="system", subtype="session_state_changed", state=name)


class Agent:
    def __init__(self) -> None:
        self.prompts: deque[dict[str, Any]] = deque()
        self.replies: dict[str, dict[str, Any]] = {}
        self.asked = 0

    def live(self) -> None:
        while True:
            while not self.prompts:
                self.listen()
            self.turn(self.prompts.popleft())

    def listen(self) -> None:
        """Take one message."""
        line = sys.stdin.readline()
        if not line:
            if MISDEED == "stays":
                time.sleep(1000)
            sys.exit(0)
        message = json.loads(line)
        if message["type"] == "user":
            tell(type="command_lifecycle", command_uuid=message["uuid"], state="queued")
            self.prompts.append(message)
        elif message["type"] == "control_response":
            response = message["response"]
            self.replies[response["request_id"]] = response.get("response", {"error": response.get("error")})
        elif message["type"] == "control_request":
            self.control(message["request_id"], message["request"])

    def control(self, name: str, request: dict[str, Any]) -> None:
        response: dict[str, Any] = {"subtype": "success", "request_id": name, "response": {}}
        match request["subtype"]:
            case "initialize":
                response["response"] = introduced()
            case "set_permission_mode" if request["mode"] == "nonsense":
                response = {"subtype": "error", "request_id": name, "error": "no such mode"}
        tell(type="control_response", response=response)
        if request["subtype"] == "set_permission_mode" and response["subtype"] == "success":
            tell(type="system", subtype="status", status=None, permissionMode=request["mode"])
        if request["subtype"] == "interrupt" and self.is_working:
            raise TurnOverError

    is_working = False

    def turn(self, prompt: dict[str, Any]) -> None:
        self.is_working = True
        state("running")
        tell(type="command_lifecycle", command_uuid=prompt["uuid"], state="started")
        tell(type="system", subtype="init", model="claude-sonnet-9", permissionMode="default")
        outcome: dict[str, Any] = {"subtype": "success", "is_error": False, "terminal_reason": "completed"}
        try:
            for line in prompt["message"]["content"].replace("\n  ", "\0").split("\n"):
                self.step(line.replace("\0", "\n"))
        except TurnOverError:
            outcome = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"}
        self.is_working = False
        usage = {"claude-sonnet-9": {"inputTokens": 10, "outputTokens": 1, "contextWindow": 1000}}
        tell(type="result", modelUsage=usage, total_cost_usd=0.5, **outcome)
        tell(type="command_lifecycle", command_uuid=prompt["uuid"], state="completed")
        state("idle")

    def step(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        match verb:
            case "say" | "think":
                self.write(verb, rest)
            case "ask":
                self.use("Bash", {"command": rest}, "done", asks=True)
            case "question":
                self.use("AskUserQuestion", json.loads(rest), "answered", asks=True)
            case "elicit":
                self.asked += 1
                response = self.waited_for(f"ask-{self.asked}", {"subtype": "elicitation", **json.loads(rest)})
                self.write("say", json.dumps(response, sort_keys=True))
            case "tool":
                name, _, rest = rest.partition(" ")
                given, _, output = rest.partition(" => ")
                self.use(name, json.loads(given), output)
            case "hang":
                while True:
                    self.listen()
            case "crash" if rest.startswith("SIG"):
                os.kill(os.getpid(), getattr(signal, rest))
            case "crash":
                sys.stderr.write("these are my last words\n")
                sys.exit(int(rest))
            case "raw":
                sys.stdout.write(f"{rest}\n")
                sys.stdout.flush()
            case "half":
                sys.stdout.write('{"type": "assist')
                sys.stdout.flush()
            case "flood":
                for number in range(int(rest)):
                    delta = {"type": "text_delta", "text": f"{number} "}
                    tell(type="stream_event", event={"type": "content_block_delta", "delta": delta})
                sys.stderr.write("all said\n")
                sys.stderr.flush()
            case "huge":
                sys.stdout.write('{"type": "assistant", "x": "' + "y" * int(rest) + '"}\n')
                sys.stdout.flush()

    def write(self, verb: str, text: str) -> None:
        key = {"say": "text", "think": "thinking"}[verb]
        for word in text.split(" "):
            delta = {"type": f"{key}_delta", key: word if word == text.split(" ")[0] else f" {word}"}
            tell(type="stream_event", event={"type": "content_block_delta", "delta": delta})
        message = {"model": "claude-sonnet-9", "content": [{"type": key, key: text}]}
        tell(type="assistant", message=message, parent_tool_use_id=None)

    def use(self, name: str, given: dict[str, Any], output: str, *, asks: bool = False) -> None:
        self.asked += 1
        call = f"toolu_{self.asked}"
        if asks:
            reply = self.ask(name, given, call)
            if reply.get("behavior") != "allow":
                if reply.get("interrupt"):
                    raise TurnOverError
                return
            given = reply["updatedInput"]
        block = {"type": "tool_use", "id": call, "name": name, "input": given}
        tell(type="assistant", message={"model": "claude-sonnet-9", "content": [block]}, parent_tool_use_id=None)
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        tell(type="user", message={"content": [result]}, parent_tool_use_id=None)

    def ask(self, name: str, given: dict[str, Any], call: str) -> dict[str, Any]:
        number = f"ask-{self.asked}"
        state("requires_action")
        asked = {"subtype": "can_use_tool", "tool_name": name, "input": given, "tool_use_id": call}
        suggestions = [{"type": "one that the SDK does not know"}]
        return self.waited_for(number, {**asked, "permission_suggestions": suggestions})

    def waited_for(self, number: str, request: dict[str, Any]) -> dict[str, Any]:
        """What the request *number* is answered with; an error counts as its own words."""
        tell(type="control_request", request_id=number, request=request)
        try:
            while number not in self.replies:
                self.listen()
        except TurnOverError:
            tell(type="control_cancel_request", request_id=number)
            raise
        finally:
            state("running")
        return self.replies.pop(number)


def introduced() -> dict[str, Any]:
    match MISDEED:
        case "silent":
            time.sleep(1000)
        case "dies":
            sys.stderr.write("error: unknown option '--nonsense'\n")
            sys.exit(1)
        case "forgot":
            tell(type="result", subtype="error_during_execution", is_error=True, errors=["No conversation found"])
            sys.exit(1)
        case "old":
            return {**ANSWER, "claude_code_version": "1.0.99"}
        case "nobody":
            return {**ANSWER, "account": {"tokenSource": "none", "apiProvider": "firstParty"}}
        case "chatters":
            sys.stdout.write("Welcome!\n{half\n")
        case "elsewhere":
            folder = Path(os.environ["HOME"], ".claude", "sessions")
            folder.mkdir(parents=True)
            (folder / f"{os.getpid()}.json").write_text('{"sessionId": "another"}')
    return ANSWER


if __name__ == "__main__":
    if MISDEED == "leaks":
        sys.stderr.write(f"your key is {os.environ['ANTHROPIC_API_KEY']}\n")
        sys.exit(1)
    if MISDEED == "stays":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Agent().live()
