"""What the model does for a request: the steps of the script that are due, as pieces of an answer."""

import json
from collections.abc import Sequence
from typing import Final

from tests.support.model_stub.model_request import TITLE, Asked, example
from tests.support.model_stub.piece import Break, Pause, Piece, Text, text
from tests.support.model_stub.script import TOOL_VERBS, ScriptError, Step, Turn, new_lines, next_turn
from tests.support.model_stub.vocabulary import done

TICK_S: Final = 0.25
"""How often `slow` says a word."""
BREAKS: Final = frozenset({"malformed", "drop", "hang"})


def steps_for(asked: Asked) -> Turn:
    """The steps that *asked* is answered with.

    Raises:
        ScriptError: if its script is wrong.
    """
    if not asked.is_aux:
        return next_turn(asked.place)
    return (Step("say", TITLE if asked.schema is None else json.dumps(example(asked.schema))),)


def pieces(asked: Asked, steps: Turn) -> tuple[Piece, ...]:
    """*steps* as pieces.

    Raises:
        ScriptError: for a tool that the client does not offer, or a `fail` in the middle of a turn.
    """
    return tuple(piece for step in steps for piece in _pieces(asked, step))


def _pieces(asked: Asked, step: Step) -> Sequence[Piece]:
    return done(step, asked) if step.verb in TOOL_VERBS else [_piece(step)]


def _piece(step: Step) -> Piece:
    verb, argument = step
    if verb == "fail":
        raise ScriptError("`fail` stands before everything else that the model does in its turn")
    if verb in BREAKS:
        return Break(verb)
    if verb == "wait":
        return Pause(float(argument or 1))
    if verb == "slow":
        seconds, _, word = argument.partition(" ")
        ticks = max(1, int(float(seconds or 10) / TICK_S))
        return Text(tuple(f"{word or 'tick'}{n} " for n in range(ticks)), gap_s=TICK_S)
    return text(new_lines(argument), is_thinking=verb == "think")
