"""An MCP server with one tool, `greet`, which asks a person for a colour, or what its argument `how` says.

`url` is an address to open, `plain` a question without fields. Standard library only: agents start it.
"""

import json
import sys
from typing import Any

FORM = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "blue"], "title": "Colour"},
        "count": {"type": "integer", "description": "How many?"},
        "sure": {"type": "boolean"},
    },
    "required": ["colour"],
}
ASKED: dict[str, dict[str, Any]] = {
    "url": {"mode": "url", "message": "Sign in first.", "url": "http://127.0.0.1:9/sign-in", "elicitationId": "e1"},
    "plain": {"message": "Really?", "requestedSchema": {"type": "object", "properties": {}}},
}
TOOL = {"name": "greet", "description": "Greets somebody.", "inputSchema": {"type": "object", "properties": {}}}


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(call: Any, method: str, params: dict[str, Any]) -> None:
    if method == "initialize":
        info = {"name": "demo", "version": "1"}
        version = params["protocolVersion"]
        say({"id": call, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}})
    elif method == "tools/list":
        say({"id": call, "result": {"tools": [TOOL]}})
    elif method == "tools/call":
        how = params.get("arguments", {}).get("how", "")
        asked = ASKED.get(how, {"message": "Which colour?", "requestedSchema": FORM})
        say({"id": f"ask-{call}", "method": "elicitation/create", "params": asked})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message:
            answer(message.get("id"), message["method"], message.get("params", {}))
        elif str(message.get("id", "")).startswith("ask-"):
            content = [{"type": "text", "text": json.dumps(message.get("result"), sort_keys=True)}]
            say({"id": int(message["id"].removeprefix("ask-")), "result": {"content": content}})


if __name__ == "__main__":
    main()
