"""Whether an answer fits its request: its digest, its decision, and everything it carries. Pure.

An answer is refused if a part of it would be ignored: a user who gives an input, a choice, a reason or a scope means
it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kasmon.errors import StaleRequestError, UnableError, UsageError
from kasmon.model.commands import Answer
from kasmon.model.permission import CONSENTS, Decision, Request

STANDING: Final = (Decision.ALWAYS, Decision.NEVER)
REASONED: Final = (Decision.DENY, Decision.NEVER, Decision.CANCEL)
COMMAND_FIELDS: Final = ("command", "cmd", "argv")
"""Fields of a tool's input that hold the command to run; an edited one must not be empty."""


def must_fit(request: Request, answer: Answer) -> None:
    """Refuse an *answer* that does not fit *request*: each backend's own check, after that of the host.

    The host's is `RequestRegistry.require_answerable`.

    Raises:
        StaleRequestError: if it is for another text.
        UnableError: if the request does not accept its decision.
    """
    if answer.digest != request.digest:
        raise StaleRequestError(request.id)
    check_decision(request, answer.decision, request.choices)


def check_decision(request: Request, decision: Decision, choices: tuple[Decision, ...]) -> None:
    """Refuse a *decision* that is not one of the *choices* for *request*.

    Raises:
        UnableError: if it is not; the hint names the choices.
    """
    must_be_whole(request, decision)
    if decision not in choices:
        hint = f"It accepts {', '.join(choices)}."
        raise UnableError(f"request {request.id!r} does not accept {decision.value!r}.", hint=hint)


def must_be_complete(request: Request, answer: Answer) -> None:
    """Refuse an *answer* that lacks what its decision needs, or carries what its decision would ignore.

    Raises:
        UsageError: the message names what is missing or superfluous, the hint what is possible.
    """
    decision = answer.decision
    ignored = {
        "an input": (answer.input is not None, (Decision.EDIT,)),
        "a choice": (bool(answer.labels), (Decision.CHOOSE,)),
        "a text": (bool(answer.text), (Decision.CHOOSE,)),
        "a reason": (bool(answer.reason), REASONED),
        "a scope": (answer.scope != "session", STANDING),
    }
    for what, (is_given, decisions) in ignored.items():
        if is_given and decision not in decisions:
            raise UsageError(
                f"{decision.value!r} accepts no {what.split()[1]}. Request {request.id!r} was not answered.",
                hint=f"{what.capitalize()} requires {' or '.join(decisions)}.",
            )
    if decision is Decision.EDIT:
        _must_have_fields(request, answer.input)
    elif decision is Decision.CHOOSE:
        _must_choose(request, answer)


def missing_fields(request: Request, edited: Mapping[str, Any]) -> list[str]:
    """Return the fields that the *edited* input of *request* lacks: absent, null, or an empty command.

    The tool's schema decides which fields are required, where it is known; otherwise each field that the agent sent is.
    """
    required = request.required or tuple(request.input)
    return [name for name in required if not _has_field(name, edited.get(name))]


def with_text_as_label(answer: Answer) -> Answer:
    """Return *answer* in the form sent to agents: the user's custom text is one more label."""
    if not answer.text:
        return answer
    return msgspec.structs.replace(answer, labels=(*answer.labels, answer.text), text="")


def _has_field(name: str, value: Any) -> bool:
    if name in COMMAND_FIELDS and isinstance(value, str | list):
        return bool("".join(map(str, value)).strip())
    return value is not None


def _must_have_fields(request: Request, edited: Mapping[str, Any] | None) -> None:
    if edited is None:
        raise UsageError("an edited request requires its new input.")
    if missing := missing_fields(request, edited):
        names = ", ".join(repr(name) for name in missing)
        raise UsageError(
            f"the edited input of {request.id!r} lacks {names}.", hint="Give the whole new input, not only the changes."
        )
    if not edited:
        raise UsageError(f"the edited input of {request.id!r} is empty.")


def _must_choose(request: Request, answer: Answer) -> None:
    listed = "; ".join(f"{number}. {option}" for number, option in enumerate(request.options, 1))
    choices = f"Choices: {listed}." if listed else "It has no choices."
    takes_text = request.free_text or not request.options
    own_words = " It accepts a custom answer as text." if takes_text else ""
    unknown = [label for label in answer.labels if label not in request.options]
    if unknown:
        raise UsageError(f"request {request.id!r} has no choice {unknown[0]!r}.", hint=f"{choices}{own_words}")
    if answer.text and not takes_text:
        raise UsageError(f"request {request.id!r} accepts no custom answer.", hint=choices)
    count = len(answer.labels) + bool(answer.text)
    if not count:
        raise UsageError("`choose` requires a choice.", hint=f"{choices}{own_words}")
    if count > 1 and not request.many:
        raise UsageError(f"request {request.id!r} accepts one choice, not {count}.", hint=choices)
    if len(set(answer.labels)) < len(answer.labels):
        raise UsageError(f"request {request.id!r}: the same choice was given twice.", hint=choices)


def must_be_whole(request: Request, decision: Decision) -> None:
    """Refuse a *decision* that consents to a request read from a terminal that may have truncated it.

    Raises:
        UnableError: if it consents; the user has to consent in the terminal.
    """
    if request.may_be_cut and decision in CONSENTS:
        raise UnableError(
            f"request {request.id!r} may be truncated, so it does not accept {decision.value!r} from here.",
            hint=f"Open the terminal and answer there: `kasmon attach {request.session}`.",
        )
