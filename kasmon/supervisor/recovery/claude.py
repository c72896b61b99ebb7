"""Claude Code's transcripts, `projects/<folder>/<id>.jsonl` in its config folder; read only (claude 2.1.330)."""

from collections.abc import Iterator
from pathlib import Path

from kasmon.backends.claude import history
from kasmon.backends.shape import rows, table, text
from kasmon.supervisor.recovery.kept import Kept, kept, objects, readable


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

    def is_wanted(line: bytes) -> bool:
        return b'"type":"assistant"' in line or (not directory and b'"cwd"' in line)

    for entry in objects(file, is_wanted):
        directory = directory or text(entry, "cwd")
        if entry.get("type") == "assistant" and not entry.get("isSidechain"):
            words = (text(part, "text") for part in rows(table(entry, "message"), "content"))
            said = "\n".join(each for each in words if each) or said
    return kept(file.stem, directory, prompts, said, file.stat().st_mtime)
