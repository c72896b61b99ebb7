"""Claude Code's transcripts, `projects/<folder>/<id>.jsonl` in its config folder; read only (claude 2.1.330)."""

import json
from collections.abc import Iterator
from pathlib import Path

from kasmon.backends.claude import history
from kasmon.backends.shape import rows, table, text
from kasmon.supervisor.recovery.kept import Kept, kept, readable


def conversations(config: Path) -> Iterator[Kept]:
    """Those of the config folder *config*; what cannot be read is not there."""
    return readable(config.glob("projects/*/*.jsonl"), conversation)


def conversation(file: Path) -> Kept | None:
    """The one in *file*; None where no prompt is in it.

    Raises:
        OSError: if it cannot be read.
    """
    prompts = list(dict.fromkeys(history.prompts(file)))
    if not prompts:
        return None
    directory = said = ""
    with file.open("rb") as lines:
        for line in lines:
            is_said = b'"type":"assistant"' in line
            if not is_said and (directory or b'"cwd"' not in line):
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(entry, dict):
                continue
            directory = directory or text(entry, "cwd")
            if is_said and entry.get("type") == "assistant" and not entry.get("isSidechain"):
                words = (text(part, "text") for part in rows(table(entry, "message"), "content"))
                said = "\n".join(each for each in words if each) or said
    return kept(file.stem, directory, prompts, said, file.stat().st_mtime)
