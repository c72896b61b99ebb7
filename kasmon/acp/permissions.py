"""Convert a request to the protocol's permission request, and the editor's choice to an answer. Pure.

| choice in kasmon | in the editor |
|---|---|
| allow, always, deny, never | an option of the kind `allow_once`, `allow_always`, `reject_once`, `reject_always` |
| choose, of one label | an option of the kind `allow_once` for each label |
| edit, cancel, several labels, a custom text | not in the protocol: they remain in kasmon |
"""

from collections.abc import Sequence
from typing import Any, Final

from kasmon.acp.updates import diff_contents
from kasmon.model.commands import Answer
from kasmon.model.permission import CONSENTS, Decision, Request
from kasmon.model.transcript.export import fenced
from kasmon.model.transcript.request_text import RequestDocument
from kasmon.sanitize import clean_line

KINDS: Final = {
    Decision.ALLOW: ("allow_once", "Allow"),
    Decision.ALWAYS: ("allow_always", "Always allow"),
    Decision.DENY: ("reject_once", "Deny"),
    Decision.NEVER: ("reject_always", "Never allow"),
}
"""The decisions that the protocol has: its kind of the option, and the option's name."""
WIDTH_CELLS: Final = 100
"""The width at which a request's text is laid out."""
LABEL: Final = "choose-"
"""The beginning of the id of an option that is a label; its number from 0 follows."""


def options_of(document: RequestDocument) -> list[dict[str, Any]]:
    """Return the options that the editor offers for a request; none if it can only be answered in kasmon.

    A request with hidden characters, or one that may be cut, can only be denied there; one with a secret makes no
    standing rule.
    """
    request = document.request
    if not request.answerable:
        return []
    is_unclear = request.may_be_cut or document.hidden
    options: list[dict[str, Any]] = []
    if Decision.CHOOSE in request.choices and not request.many and not is_unclear:
        options = [_option(f"{LABEL}{number}", label, "allow_once") for number, label in enumerate(request.options)]
    for decision in request.choices:
        is_standing = decision in (Decision.ALWAYS, Decision.NEVER)
        if decision not in KINDS or (is_unclear and decision in CONSENTS) or (is_standing and document.secrets):
            continue
        kind, name = KINDS[decision]
        options.append(_option(decision.value, f"{name}: {document.rule()}" if is_standing else name, kind))
    is_question = bool(request.options) or request.free_text
    return [] if is_question and not any(option["optionId"].startswith(LABEL) for option in options) else options


def answer_of(request: Request, option: str, editor: str) -> Answer | None:
    """Return the answer that the option with the id *option* means; None if it means none.

    *editor*: the name of the editor, as it gave it.
    """
    if option.startswith(LABEL):
        number = option.removeprefix(LABEL)
        if not (number.isascii() and number.isdecimal() and int(number) < len(request.options)):
            return None
        labels = (request.options[int(number)],)
        return Answer(request=request.id, digest=request.digest, decision=Decision.CHOOSE, labels=labels, editor=editor)
    if option not in {decision.value for decision in KINDS}:
        return None
    return Answer(request=request.id, digest=request.digest, decision=Decision(option), editor=editor)


def contents_of(document: RequestDocument, workdir: str, options: Sequence[object]) -> list[dict[str, Any]]:
    """Return the whole request as contents of a tool call, with secrets hidden, and what the editor cannot do."""
    request = document.request
    diffs = diff_contents(request.shown, workdir) if request.is_diff and not document.secrets else []
    texts = [fenced("\n".join(line.text for line in document.rows(WIDTH_CELLS, with_options=True)), "")]
    if not options:
        texts.append(f"This can only be answered in kasmon: `kasmon answer {request.id} DECISION`.")
    elif document.hidden or request.may_be_cut:
        texts.append("It may hide something from you here, so it can only be allowed in kasmon.")
    return [*diffs, *({"type": "content", "content": {"type": "text", "text": text}} for text in texts)]


def _option(name: str, label: str, kind: str) -> dict[str, Any]:
    return {"optionId": name, "name": clean_line(label), "kind": kind}
