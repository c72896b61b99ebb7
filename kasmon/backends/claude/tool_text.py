"""The input and output of a tool as readable text: one line for the input, plain text for the output."""

import re
from typing import Final

from kasmon.backends.common.json_access import Table, rows, text
from kasmon.sanitize import clean_line

TITLE_CHARACTERS: Final = 300
TELLING: Final = (
    "command",
    "file_path",
    "notebook_path",
    "pattern",
    "url",
    "query",
    "subject",
    "description",
    "skill",
    "path",
    "prompt",
)
"""The fields of a tool's input that describe it best, the best first."""
WARNINGS: Final = {"run_in_background": "in the background", "dangerouslyDisableSandbox": "OUTSIDE THE SANDBOX"}
"""Fields of a command that change its meaning."""
REQUIRED: Final = {
    "Agent": ("description", "prompt"),
    "Bash": ("command",),
    "Edit": ("file_path", "old_string", "new_string"),
    "Glob": ("pattern",),
    "Grep": ("pattern",),
    "NotebookEdit": ("notebook_path", "new_source"),
    "Read": ("file_path",),
    "Task": ("description", "prompt"),
    "WebFetch": ("url", "prompt"),
    "WebSearch": ("query",),
    "Write": ("file_path", "content"),
}
"""The required fields of claude's own tools."""
WRAPPED: Final = re.compile(r"\A<tool_use_error>(.*)</tool_use_error>\Z", re.DOTALL)


def title(asked: Table) -> str:
    """Return one line that describes a tool with the input *asked*; empty if no field does."""
    texts = [text(asked, name) for name in TELLING] + [
        text(question, "question") for question in rows(asked, "questions")
    ]
    line = clean_line(next((line_text for line_text in texts if line_text.strip()), "")).strip()
    warnings = [line_text for name, line_text in WARNINGS.items() if asked.get(name) is True]
    return "".join(f"{line_text}: " for line_text in warnings) + line[:TITLE_CHARACTERS]


def output(result: Table) -> str:
    """Return the output of a tool from its `tool_result` block; a picture is only mentioned."""
    content = result.get("content")
    if not isinstance(content, str):
        content = "\n".join(_format_value(part) for part in rows(result, "content"))
    wrapped = WRAPPED.match(content)
    return wrapped[1] if wrapped else content


def _format_value(part: Table) -> str:
    return text(part, "text") if part.get("type") == "text" else f"[{text(part, 'type') or 'something'}]"
