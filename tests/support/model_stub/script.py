"""The script that a prompt carries: what the model does, step by step, without any state in the server.

    anything %% think hmm %% say hello %% bash touch x.txt %% say done

Steps stand between `%%`; what stands before the first is a label.

    say TEXT              text, word by word
    think TEXT            reasoning
    slow SECONDS [WORD]   a word every 0.25 s, for so long
    wait SECONDS          silence
    bash COMMAND          call the client's shell
    write PATH|TEXT       call the tool that makes a file
    edit PATH|OLD|NEW     call the tool that changes a file
    read PATH             call the tool that reads a file
    ask Q|OPTION|OPTION   call the tool that asks the user
    plan TEXT             show a plan (claude and codex: in plan mode; codex says it in its last turn)
    todo A|B|C            call the tool that keeps a to-do list
    task PROMPT           call the tool that starts a sub-agent; its script is written with `::` for `%%`
    tool NAME {JSON}      call any tool
    fail STATUS [N]       answer with this HTTP status; N times, then go on; without N always
    malformed             half a message in the stream
    drop                  cut the connection
    hang                  go silent until the client leaves
    end                   the script is over, whatever a client puts behind the prompt

A tool ends the model's turn; the client's next request, with the tool's result, goes on behind it. `+bash` and the like
call a tool in the same turn as the one before. `\\n` is a new line, but in a command. A client that asks for its answer
in one piece gets it without `malformed`, `drop` and `hang`.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

TOOL_VERBS: Final = frozenset({"bash", "write", "edit", "read", "ask", "plan", "todo", "task", "tool"})
VERBS: Final = TOOL_VERBS | {"say", "think", "slow", "wait", "fail", "malformed", "drop", "hang"}
MARK: Final = "%%"
OTHER_SCRIPT_MARK: Final = "::"


LATEST: Final = re.compile(rf"\n+(?=go {MARK} )")
"""Some clients send a prompt that got no answer again, in one message with the next one: the last one counts."""


class Step(NamedTuple):
    """One thing that the model does."""

    verb: str
    argument: str = ""


Turn = tuple[Step, ...]
"""What the model does in one request: it ends with a tool, or is the last."""
PLAIN: Final[Turn] = (Step("say", "modelstub: ok"),)
"""For a prompt without a script."""
OVER: Final[Turn] = (Step("say", "modelstub: end of script"),)


class ScriptError(Exception):
    """The prompt's script is wrong; the client is told by an error of its API."""


class By(StrEnum):
    """Whose a piece of a conversation is."""

    USER = "user"
    MODEL = "model"
    CALL = "call"
    RESULT = "result"


class Message(NamedTuple):
    """A piece of a conversation: a text, a call of a tool (its name), or the result of one."""

    by: By
    text: str


class Position(NamedTuple):
    """Where a conversation stands in its latest script."""

    script: str | None
    """None: the latest prompt has none."""
    turns_done: int
    """The model's turns that ended with a tool since the script came."""
    prompt: str
    """The latest text of the user, script or not."""
    results: tuple[str, ...]
    """What the tools gave since."""


def turns(script: str) -> list[Turn]:
    """The turns of *script*; at least one, the last may be empty.

    Raises:
        ScriptError: for a verb that does not exist.
    """
    done: list[list[Step]] = [[]]
    for part in re.split(rf"\s*{MARK}\s*", script)[1:]:
        verb_name, argument = (*part.strip().split(maxsplit=1), "", "")[:2]
        verb = verb_name.removeprefix("+")
        if verb == "end":
            break
        if verb not in VERBS:
            raise ScriptError(f"{verb_name!r} is no verb of the model stub (in {script!r})")
        if verb_name != verb and len(done) > 1:
            done[-2].append(Step(verb, argument))
            continue
        done[-1].append(Step(verb, argument))
        if verb in TOOL_VERBS:
            done.append([])
    return [tuple(turn) for turn in done]


def place(talk: Sequence[Message]) -> Position:
    """Where *talk*, oldest first, stands.

    A prompt without a script makes an end of the one before, unless it comes between a tool and the model's next turn:
    then it was steered into the turn, and the script goes on.
    """
    script: str | None = None
    prompt, turns_done, results = "", 0, list[str]()
    before: By | None = None
    for by, text in talk:
        if by is By.USER:
            if MARK in text:
                script, turns_done, results = LATEST.split(text)[-1], 0, []
            elif _is_interruption(text):
                script = None
            elif _is_context(text):
                continue
            elif before is not By.RESULT:
                script = None
            prompt = text
        elif by is By.CALL:
            turns_done += before is not By.CALL
        elif by is By.RESULT:
            results.append(text)
        before = by
    return Position(script, turns_done, prompt, tuple(results))


def next_turn(at: Position) -> Turn:
    """What the model does now.

    Raises:
        ScriptError: for a verb that does not exist.
    """
    if at.script is None:
        return PLAIN
    all_turns = turns(at.script)
    return (all_turns[at.turns_done] if at.turns_done < len(all_turns) else ()) or OVER


def _is_context(text: str) -> bool:
    """Clients wrap what they say in the user's name, such as `<environment_context>`."""
    return text.lstrip().startswith("<")


def _is_interruption(text: str) -> bool:
    return text.lstrip().startswith(("[Request interrupted", "<turn_aborted>"))


def new_lines(argument: str) -> str:
    """*argument* with the new lines that a script can only write as `\\n`."""
    return argument.replace("\\n", "\n")


def nested(prompt: str) -> str:
    """The prompt of a sub-agent, whose script is written with `::`."""
    return prompt.replace(OTHER_SCRIPT_MARK, MARK)
