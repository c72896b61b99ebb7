"""Requests and their answers as rows of a transcript."""

from typing import Final

from kasmon.model.events import Event, RequestAnswered, RequestSetAside, RequestWithdrawn
from kasmon.model.permission import Decision, Request, RequestKind
from kasmon.model.transcript import diff
from kasmon.model.transcript.style import BELOW, UNDER, TranscriptStyle, fold_row
from kasmon.model.transcript.text import BLANK, Span, TextLine, Token, wrap, wrap_paragraphs
from kasmon.sanitize import clean_line, redact

NOTE: Final = (("     ", Token.FAINT),)
"""The margin left of an option's description."""
POLICY: Final = "policy"
"""The author of an answer by a rule."""
TOLD: Final = {
    Decision.ALLOW: "allowed once",
    Decision.ALWAYS: "always allowed",
    Decision.DENY: "denied",
    Decision.NEVER: "always denied",
    Decision.EDIT: "allowed with edited input",
    Decision.CHOOSE: "answered",
    Decision.CANCEL: "denied, and the turn was interrupted",
    Decision.LATER: "snoozed",
}


def request(asked: Request, style: TranscriptStyle, *, repeats: bool = False) -> list[TextLine]:
    """Return the whole request, with hidden characters shown and secrets redacted.

    Only a change that the call's own result shows too (*repeats*) is folded.
    """
    title, shown = redact(asked.title)[0], redact(asked.shown.removesuffix("\n"))[0]
    opening = {
        RequestKind.PERMISSION: f"requests to use {clean_line(asked.tool)}:",
        RequestKind.QUESTION: "asks:",
        RequestKind.PLAN: "requests approval of its plan:",
        RequestKind.AUTH: "wants you to sign in:",
    }[asked.kind]
    first = shown if shown.startswith(title) and not asked.is_diff else title
    head: list[Span] = [(opening, Token.ASKS), *([(f" {first}", Token.SUBJECT)] if first else [])]
    rows = [BLANK, *wrap_paragraphs(head, style.width, (("? ", Token.ASKS),))]
    if repeats and style.fold:
        rows += fold_row("▸ the same change as above", style)
    elif asked.is_diff:
        rows += diff.draw_diff(shown.split("\n"), style.width, UNDER)
    elif shown and first != shown:
        rows += wrap_paragraphs([(shown, Token.SUBJECT)], style.width, UNDER)
    for number, option in enumerate(asked.options, 1):
        rows += wrap_paragraphs([(redact(option)[0], Token.SUBJECT)], style.width, ((f"  {number}. ", Token.ASKS),))
        note = asked.option_notes[number - 1] if number <= len(asked.option_notes) else ""
        rows += wrap_paragraphs([(redact(note)[0], Token.FAINT)], style.width, NOTE) if note else []
    if asked.why:
        rows += wrap_paragraphs([("reason: ", Token.FAINT), (redact(asked.why)[0], Token.TEXT)], style.width, UNDER)
    return [*rows, *(fold_row("▴ collapse", style) if repeats and style.opened else [])]


def answer(event: Event, style: TranscriptStyle) -> list[TextLine]:
    """Return the outcome of a request: answered, set aside or withdrawn; no lines for other events."""
    match event:
        case RequestAnswered(decision=Decision.CHOOSE):
            outcome = f"chosen by {_describe_author(event)}: {', '.join(event.labels)}"
        case RequestAnswered():
            reason = f": {event.reason}" if event.reason else ""
            made = f", by rule {event.rule} from now on" if event.rule and event.by != POLICY else ""
            outcome = f"{TOLD[event.decision]} by {_describe_author(event)}{made}{reason}"
        case RequestSetAside():
            outcome = "snoozed"
        case RequestWithdrawn():
            outcome = f"withdrawn: {event.why}" if event.why else "withdrawn"
        case _:
            return []
    rows = wrap([(clean_line(outcome), Token.ANSWER)], style.width, BELOW, UNDER)
    if isinstance(event, RequestAnswered) and event.diff:
        rows += diff.draw_diff(redact(event.diff)[0].split("\n"), style.width, UNDER)
    return rows


def _describe_author(event: RequestAnswered) -> str:
    if event.by == POLICY:
        return f"rule {event.rule}" if event.rule else "a rule"
    return f"{event.by} at {event.who}" if event.who else event.by
