"""What a misbehaving codex is made of: one that begins well, and then does what a test writes down for it.

Standard library only, so that it starts at once.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
THREAD = "01a20000-0000-7000-8000-000000000001"
FAKE = "from tests.support.codex.fake_codex import main; main()"
NO_SOCKET = """if "--listen" in sys.argv: sys.exit("error: unexpected argument '--listen' found")"""
ODD = "import json, os, time\nfrom tests.support.codex.odd_codex import *\n"


def program(folder: Path, code: str) -> str:
    """The path of a `codex` in *folder* that runs *code*; like an older codex, it cannot listen on a socket."""
    path = folder / "codex"
    flags = "-SP" if code.startswith(ODD) else "-P"
    begins = f"import sys\n{NO_SOCKET}\nsys.path.insert(0, {str(ROOT)!r})"
    path.write_text(f"#!{sys.executable} {flags}\n{begins}\n{code}\n")
    path.chmod(0o700)
    return str(path)


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def notify(method: str, **params: Any) -> None:
    say(method=method, params={"threadId": THREAD, **params})


Answer = Callable[[dict[str, Any]], Any]
OPENED = {"thread": {"id": THREAD}, "model": "odd-1", "approvalPolicy": "untrusted"}
ANSWERS: dict[str, Answer] = {
    "initialize": lambda _: {"userAgent": "kasmon/0.169.0 (odd)"},
    "account/read": lambda _: {"account": None, "requiresOpenaiAuth": False},
    "model/list": lambda _: {"data": []},
    "skills/list": lambda _: {"data": []},
    "thread/start": lambda _: OPENED,
    "thread/resume": lambda params: {**OPENED, "thread": {"id": params["threadId"]}},
    "turn/start": lambda _: {"turn": {"id": "t1"}},
    "turn/steer": lambda _: {"turnId": "t1"},
    "turn/interrupt": lambda _: {},
}


class Refused(Exception):  # noqa: N818 - it is no error of ours
    """The call is answered with an error that says this."""


def hear() -> dict[str, Any]:
    """The next message; ends the program when there is none."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message: dict[str, Any] = json.loads(line)
    return message


def answer(message: dict[str, Any], answers: dict[str, Answer]) -> None:
    if "method" not in message or "id" not in message:
        return
    try:
        say(id=message["id"], result=answers[message["method"]](message["params"]))
    except Refused as refused:
        say(id=message["id"], error={"code": -32600, "message": str(refused)})


def refuse(why: str) -> Answer:
    def refusing(_: dict[str, Any]) -> Any:
        raise Refused(why)

    return refusing


def serve(until: str = "", **answers: Answer) -> dict[str, Any]:
    """Answer calls, until *until* was called; the parameters of that. In *answers* `__` stands for `/`."""
    known = ANSWERS | {name.replace("__", "/"): given for name, given in answers.items()}
    while True:
        message = hear()
        answer(message, known)
        if message.get("method") == until:
            return dict(message.get("params") or {})


def begin_turn() -> None:
    notify("turn/started", turn={"id": "t1"})


def ask(call: Any = 0, **params: Any) -> None:
    given = {"threadId": THREAD, "itemId": "i", "command": "ls"} | params
    say(id=call, method="item/commandExecution/requestApproval", params=given)


def end_turn(status: str = "completed", **error: Any) -> None:
    notify("turn/completed", turn={"id": "t1", "status": status, "error": error or None})
