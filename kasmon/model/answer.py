"""Whether an answer is one to a request: it means just this text, and its decision is among those that are taken."""

from kasmon.errors import StaleRequestError, UnableError
from kasmon.model.command import Answer
from kasmon.model.permission import Decision, Request


def must_fit(request: Request, answer: Answer) -> None:
    """Refuse an *answer* that is none to *request*.

    Raises:
        StaleRequestError: if it means another text.
        UnableError: if the request does not take its decision.
    """
    if answer.digest != request.digest:
        raise StaleRequestError(request.id)
    must_take(request, answer.decision, request.choices)


def must_take(request: Request, decision: Decision, choices: tuple[Decision, ...]) -> None:
    """Refuse a *decision* that is none of the *choices* that there are for *request*.

    Raises:
        UnableError: if it is none of them; the hint names them.
    """
    if decision not in choices:
        hint = f"It takes {', '.join(choices)}."
        raise UnableError(f"request {request.id!r} does not take {decision.value!r}.", hint=hint)
