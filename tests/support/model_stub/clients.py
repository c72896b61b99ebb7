"""The four kinds of clients that the model stub has, each as short as its API allows."""

import asyncio
import http.client
import json
from dataclasses import dataclass, replace
from typing import Any, Self

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    events: tuple[Json, ...]
    """Of a stream its events, else the one object."""


@dataclass(frozen=True)
class Client:
    """A conversation in one API, with tools that are named as its usual client does."""

    url: str
    talk: tuple[Json, ...] = ()
    tools: tuple[str, ...] = ()
    streams: bool = True
    schema: Json | None = None

    def says(self, prompt: str) -> Self:
        raise NotImplementedError

    def ran(self, call: tuple[str, Any], result: str) -> Self:
        """As after *call*, a tool and its arguments, gave *result*."""
        raise NotImplementedError

    def path(self) -> str:
        raise NotImplementedError

    def body(self) -> Json:
        raise NotImplementedError

    def text(self, answer: Answer) -> str:
        raise NotImplementedError

    def thought(self, answer: Answer) -> str:
        raise NotImplementedError

    def calls(self, answer: Answer) -> list[tuple[str, Any]]:
        """The tools that *answer* calls, each with its arguments."""
        raise NotImplementedError

    def but(self, **changed: Any) -> Self:
        return replace(self, **changed)

    def adds(self, *messages: Json) -> Self:
        return replace(self, talk=(*self.talk, *messages))

    async def ask(self) -> Answer:
        """The answer.

        Raises:
            http.client.HTTPException: if it breaks off.
        """
        return await asyncio.to_thread(post, self.url, self.path(), self.body())


def post(url: str, path: str, body: Json) -> Answer:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.headers["Content-Type"] != "text/event-stream":
        return Answer(response.status, (json.loads(text),))
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return Answer(response.status, tuple(json.loads(line) for line in lines if line != "[DONE]"))


class Claude(Client):
    def says(self, prompt: str) -> Self:
        return self.adds({"role": "user", "content": [{"type": "text", "text": prompt}]})

    def ran(self, call: tuple[str, Any], result: str) -> Self:
        use = {"type": "tool_use", "id": "t1", "name": call[0], "input": call[1]}
        done = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": result}]}
        reminder = {"type": "text", "text": "<system-reminder>%% say no</system-reminder>"}
        return self.adds({"role": "assistant", "content": [use]}, {"role": "user", "content": [done, reminder]})

    def path(self) -> str:
        return "/v1/messages?beta=true"

    def body(self) -> Json:
        tools = [{"name": tool, "input_schema": {}} for tool in self.tools]
        wanted = {"output_config": {"format": {"type": "json_schema", "schema": self.schema}}} if self.schema else {}
        return {"model": "claude-x", "messages": self.talk, "tools": tools, "stream": self.streams, **wanted}

    def _blocks(self, answer: Answer) -> list[Json]:
        if "content" in answer.events[0]:
            return list(answer.events[0]["content"])
        blocks = {e["index"]: dict(e["content_block"]) for e in answer.events if e["type"] == "content_block_start"}
        for event in answer.events:
            if event["type"] == "content_block_delta":
                block = blocks[event["index"]]
                for kind in ("text", "thinking", "partial_json"):
                    block[kind] = block.get(kind, "") + event["delta"].get(kind, "")
        for block in blocks.values():
            block["input"] = json.loads(block["partial_json"] or "{}")
        return list(blocks.values())

    def text(self, answer: Answer) -> str:
        return "".join(block["text"] for block in self._blocks(answer) if block["type"] == "text")

    def thought(self, answer: Answer) -> str:
        return "".join(block["thinking"] for block in self._blocks(answer) if block["type"] == "thinking")

    def calls(self, answer: Answer) -> list[tuple[str, Any]]:
        return [(block["name"], block["input"]) for block in self._blocks(answer) if block["type"] == "tool_use"]


class Codex(Client):
    def says(self, prompt: str) -> Self:
        return self.adds({"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]})

    def ran(self, call: tuple[str, Any], result: str) -> Self:
        begun = {"type": "function_call", "call_id": "c1", "name": call[0], "arguments": json.dumps(call[1])}
        return self.adds(begun, {"type": "function_call_output", "call_id": "c1", "output": result})

    def path(self) -> str:
        return "/v1/responses"

    def body(self) -> Json:
        tools = [{"type": "custom" if tool == "apply_patch" else "function", "name": tool} for tool in self.tools]
        wanted = {"text": {"format": {"type": "json_schema", "schema": self.schema}}} if self.schema else {}
        return {"model": "gpt-x", "input": self.talk, "tools": tools, "stream": self.streams, **wanted}

    def _items(self, answer: Answer) -> list[Json]:
        if "output" in answer.events[0]:
            return list(answer.events[0]["output"])
        return [event["item"] for event in answer.events if event["type"] == "response.output_item.done"]

    def text(self, answer: Answer) -> str:
        return "".join(item["content"][0]["text"] for item in self._items(answer) if item["type"] == "message")

    def thought(self, answer: Answer) -> str:
        return "".join(item["summary"][0]["text"] for item in self._items(answer) if item["type"] == "reasoning")

    def calls(self, answer: Answer) -> list[tuple[str, Any]]:
        items = [item for item in self._items(answer) if item["type"].endswith("_call")]
        return [(item["name"], item["input"] if "input" in item else json.loads(item["arguments"])) for item in items]


class Opencode(Client):
    def says(self, prompt: str) -> Self:
        return self.adds({"role": "user", "content": prompt})

    def ran(self, call: tuple[str, Any], result: str) -> Self:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        begun = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
        return self.adds(begun, {"role": "tool", "tool_call_id": "c1", "content": result})

    def path(self) -> str:
        return "/v1/chat/completions"

    def body(self) -> Json:
        tools = [{"type": "function", "function": {"name": tool}} for tool in self.tools]
        wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": self.schema}}
        more = {"response_format": wanted} if self.schema else {}
        return {"model": "x", "messages": self.talk, "tools": tools, "stream": self.streams, **more}

    def _said(self, answer: Answer) -> list[Json]:
        choices = [choice for event in answer.events for choice in event["choices"]]
        return [choice["delta"] if "delta" in choice else choice["message"] for choice in choices]

    def text(self, answer: Answer) -> str:
        return "".join(part.get("content") or "" for part in self._said(answer))

    def thought(self, answer: Answer) -> str:
        return "".join(part.get("reasoning_content") or "" for part in self._said(answer))

    def calls(self, answer: Answer) -> list[tuple[str, Any]]:
        made: dict[int, list[str]] = {}
        for part in self._said(answer):
            for at, call in enumerate(part.get("tool_calls", ())):
                name_and_arguments = made.setdefault(call.get("index", at), ["", ""])
                name_and_arguments[0] += call["function"].get("name", "")
                name_and_arguments[1] += call["function"]["arguments"]
        return [(name, json.loads(arguments)) for name, arguments in made.values()]


class Gemini(Client):
    def says(self, prompt: str) -> Self:
        return self.adds({"role": "user", "parts": [{"text": prompt}]})

    def ran(self, call: tuple[str, Any], result: str) -> Self:
        begun = {"functionCall": {"name": call[0], "args": call[1]}}
        done = {"functionResponse": {"name": call[0], "response": {"output": result}}}
        return self.adds({"role": "model", "parts": [begun]}, {"role": "user", "parts": [done]})

    def path(self) -> str:
        return f"/v1beta/models/gemini-x:{'streamGenerateContent?alt=sse' if self.streams else 'generateContent'}"

    def body(self) -> Json:
        tools = [{"functionDeclarations": [{"name": tool} for tool in self.tools]}]
        wanted = {"responseMimeType": "application/json", "responseJsonSchema": self.schema} if self.schema else {}
        return {"contents": self.talk, "tools": tools, "generationConfig": wanted}

    def _parts(self, answer: Answer) -> list[Json]:
        contents = [event["candidates"][0]["content"] for event in answer.events]
        return [part for content in contents for part in content["parts"]]

    def text(self, answer: Answer) -> str:
        return "".join(part.get("text", "") for part in self._parts(answer) if not part.get("thought"))

    def thought(self, answer: Answer) -> str:
        return "".join(part["text"] for part in self._parts(answer) if part.get("thought"))

    def calls(self, answer: Answer) -> list[tuple[str, Any]]:
        made = [part["functionCall"] for part in self._parts(answer) if "functionCall" in part]
        return [(call["name"], call["args"]) for call in made]
