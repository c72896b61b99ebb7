"""The parts of a transcript that can be copied: the text of a code block, an answer, an output, a change."""

import msgspec

from kasmon.model import events
from kasmon.model.transcript import run_blocks, tool_blocks
from kasmon.model.transcript.blocks import Block
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.markdown.renderer import code_blocks
from kasmon.sanitize import Clean, clean_block


class Piece(msgspec.Struct, frozen=True):
    """Cleaned text, and its kind, for people."""

    what: str
    text: Clean


def piece(block: Block, code: int = 0) -> Piece | None:
    """Return the text of *block*, or of its code block of that number; None if there is nothing to copy."""
    match block.event:
        case events.EntryImported(entry=entry):
            return piece(msgspec.structs.replace(block, event=entry), code)
        case events.MessageWritten() as said if code:
            blocks = code_blocks(clean_block(said.text))
            return Piece("code block", Clean(blocks[code - 1])) if code <= len(blocks) else None
        case events.MessageWritten() as said:
            return Piece("answer", clean_block(said.text))
        case events.PartialTextWritten() as part:
            return Piece("thought" if part.thinking else "answer", clean_block(part.text))
        case events.ThoughtWritten() as thought:
            return Piece("thought", clean_block(thought.text))
        case events.TurnStarted() as turn:
            return Piece("prompt", clean_block(turn.prompt))
        case events.RequestOpened() as opened:
            return Piece("request", clean_block(opened.request.shown or opened.request.title))
        case events.ToolStarted() as run if code and run_blocks.code_of(run):
            return Piece("code", clean_block(run_blocks.code_of(run)))
        case events.ToolStarted() | events.ToolFinished() as event:
            ended = tool_blocks.ending(event, block.then)
            if ended is not None and ended.diff:
                return Piece("change", clean_block(ended.diff))
            if ended is not None and ended.output:
                return Piece("output", clean_block(ended.output))
            return Piece("call", tool_blocks.title(event)) if isinstance(event, events.ToolStarted) else None
    return None


def last_answer(transcript: Transcript) -> Piece | None:
    """Return the last message of the agent itself, not of its sub-agents."""
    for block in reversed(transcript.blocks):
        if isinstance(block.event, events.MessageWritten) and not block.event.within:
            return piece(block)
    return None
