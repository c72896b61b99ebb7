"""The card's keys and what each does: answers, rules and their scopes, a question's options. Pure."""

from typing import Final

import msgspec
from rich.cells import cell_len

from kasmon.model.permission import Decision, RequestKind
from kasmon.model.transcript.request_text import note_of
from kasmon.model.transcript.text import Token, wrap
from kasmon.sanitize import redact, visible
from kasmon.tui.key_names import shown_key
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.card.text import BLANK, CardMode, CardState
from kasmon.tui.permissions.question_picks import row_count
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, width_of
from kasmon.tui.widgets.text_lines import DrawnLine, pad_first, pressing, side_by_side

TOO_LONG: Final = "the rule is too long for this window"
KEYS: Final = 3
"""Cells for the first key of a row, so that labels line up; longer keys are shown in full."""
ROOMY: Final = 60
"""From this width on there is space for that alignment."""


def choice_lines(state: CardState, look: ThemeStyles, keys: KeyMap, width: int, brief: bool = False) -> list[DrawnLine]:
    """Return the lines of keys, faint while inactive. *brief* shortens rules and options that are too long."""
    ready: StyledSpan = (f"{look.state_glyph('working')} ready ", "good")
    wait: StyledSpan = (f"{look.state_glyph('starting')} wait ", "faint")
    gauge = (ready if state.armed else wait,)
    match state.doing:
        case CardMode.REASONING:
            says = f"deny, and always deny in {state.reach}: {state.sheet.rule()}"
            many = f"deny these {len(state.group) - len(state.left_out)}" if state.group else "deny"
            label = says if state.saying is Decision.NEVER else many
            return [
                *_long_offer(look, _enter(look), label, True, width, pressing("enter")),
                _escape_line(look, width, "cancel"),
            ]
        case CardMode.WORDING:
            answers = [
                _first_line(look, width, _enter(look), "use this answer", True, pressing("enter")),
                _escape_line(look, width, "cancel"),
            ]
            return [*_options(state, look, keys, width, brief), BLANK, *answers]
        case CardMode.EDITING:
            return [_escape_line(look, width, "review changes")]
        case CardMode.SPELLING:
            return [msgspec.structs.replace(_escape_line(look, width, "cancel"), right=gauge)]
        case CardMode.OVER:
            more = "next request" if state.waiting else "back to the list"
            line = _first_line(look, width, keys.shown("request_on", look.utf8), more, state.armed, "request_on")
            return [line, DrawnLine(_first_line(look, width, keys.shown("close"), "close", True).left, gauge, "close")]
        case CardMode.TOGETHER:
            back = _first_line(look, width, keys.shown("close", look.utf8), "back to single request", True, "close")
            return [*_group_lines(state, look, keys, width), msgspec.structs.replace(back, right=gauge)]
    lines = [*_options(state, look, keys, width, brief), *_decisions(state, look, keys, width, brief)]
    last = [_offer(look, keys.shown("close", look.utf8), "close", True, "close")]
    if len(state.alike) > 1 and not state.edited:
        last.append(_offer(look, keys.shown("together"), f"answer {len(state.alike)} similar", state.armed, "together"))
    if state.waiting > 1 and not state.in_list:
        arrows = f"{keys.shown('request_back', look.utf8)} {keys.shown('request_on', look.utf8)}"
        last.append(_offer(look, arrows, "prev/next", state.armed, "request_on"))
        last.append(_offer(look, keys.shown("all_requests", look.utf8), "inbox", state.armed, "all_requests"))
    *others, end = side_by_side(last, width - width_of(gauge) - 1, first=_first_cells(width))
    return [*lines, *others, msgspec.structs.replace(end, right=gauge)]


def _decisions(state: CardState, look: ThemeStyles, keys: KeyMap, width: int, brief: bool) -> list[DrawnLine]:
    request = state.sheet.request
    if not request.answerable:
        why = "kasmon cannot answer this request. Answer it in the agent's terminal."
        return [
            *(DrawnLine(((f" {row}", "soft"),)) for row in _wrap(why, width - 1)),
            BLANK,
            _first_line(look, width, _enter(look), "open terminal", state.armed, "enter"),
        ]
    approve = state.armed and state.read
    labels = {RequestKind.PLAN: "Approve the plan", RequestKind.AUTH: "I have signed in"}
    lines: list[DrawnLine] = []
    if Decision.ALLOW in request.choices or state.edited:
        once = "Allow as edited" if state.edited else labels.get(request.kind, "Allow once")
        lines.append(_first_line(look, width, keys.shown("allow_once"), once, approve, "allow_once"))
    lines += _rule_lines(state, look, keys, width, brief)
    row: list[DrawnLine] = []
    denies = "Deny with a reason" if state.reads_reasons else "Deny"
    if Decision.DENY in request.choices:
        row.append(_offer(look, keys.shown("deny"), denies, state.armed, "deny"))
    if Decision.CANCEL in request.choices:
        row.append(_offer(look, keys.shown("deny_and_end"), "Deny and interrupt", state.armed, "deny_and_end"))
    if Decision.EDIT in request.choices and request.input:
        row.append(_offer(look, keys.shown("edit"), "Edit, then allow", approve, "edit"))
    if state.is_elsewhere:
        row.append(_offer(look, _enter(look), "Answer in terminal", state.armed, "enter"))
    later = "Snooze" if not request.later else "Keep snoozed"
    row.append(_offer(look, keys.shown("later"), later, state.armed, "later"))
    return [*lines, *side_by_side(row, width, first=_first_cells(width))]


def _rule_lines(state: CardState, look: ThemeStyles, keys: KeyMap, width: int, brief: bool) -> list[DrawnLine]:
    """The complete rule that would be created, for allowing or denying, and its scope."""
    choices, rule = state.sheet.request.choices, state.sheet.rule()
    offered = [(Decision.ALWAYS, "Always", "allow_always"), (Decision.NEVER, "Never", "deny_always")]
    lines: list[DrawnLine] = []
    for decision, label, action in offered if state.may_rule else []:
        if decision not in choices:
            continue
        if brief:
            return [_first_line(look, width, keys.shown(action), f"{label}: {TOO_LONG}", False, action)]
        live = state.armed and (state.read or decision is Decision.NEVER)
        rule_rows = _long_offer(look, keys.shown(action), f"{label}: {rule}", live, width, action)
        if lines and len(rule_rows) > 1:
            rule_rows = [_first_line(look, width, keys.shown(action), f"{label}: same rule", live, action)]
        lines += rule_rows
    return [*lines, *_reach_lines(state, look, keys.shown("reach"), width)] if lines and state.reaches else lines


def _reach_lines(state: CardState, look: ThemeStyles, key: str, width: int) -> list[DrawnLine]:
    """The scopes of a rule: all if they fit in a row, else only the chosen one, in full."""
    every = [_offer(look, key, "scope", state.armed, "reach")]
    for reach in state.reaches:
        is_selected = reach.scope == state.scope
        box = _box(look, is_selected)
        role = "accent.bold" if is_selected else "text"
        every.append(DrawnLine(((f"{box} {reach.words}", role if state.armed else "faint"),), action=reach.action))
    [row, *others] = side_by_side(every, width, gap=2, first=_first_cells(width))
    if not others:
        return [row]
    return _long_offer(look, key, f"scope {state.reach}", state.armed, width, "reach")


def _group_lines(state: CardState, look: ThemeStyles, keys: KeyMap, width: int) -> list[DrawnLine]:
    many = len(state.group) - len(state.left_out)
    approve = state.armed and state.read
    row = [
        _offer(look, keys.shown("allow_once"), f"Allow these {many} once", approve, "allow_once"),
        _offer(look, keys.shown("deny"), f"Deny these {many} with a reason", state.armed, "deny"),
    ]
    return side_by_side(row, width, first=_first_cells(width))


def _long_offer(look: ThemeStyles, key: str, label: str, live: bool, width: int, action: str = "") -> list[DrawnLine]:
    """A key and its label, wrapped over as many rows as needed."""
    used = max(_first_cells(width), cell_len(key) + 2) + 1
    first, *others = _wrap(label, width - used)
    further = (DrawnLine(((f"{' ' * used}{row}", "text" if live else "faint"),), action=action) for row in others)
    return [_first_line(look, width, key, first, live, action), *further]


def _wrap(text: str, width: int) -> list[str]:
    return [row.text for row in wrap([(text, Token.TEXT)], max(1, width))]


def _options(state: CardState, look: ThemeStyles, keys: KeyMap, width: int, brief: bool) -> list[DrawnLine]:
    request, known = state.sheet.request, state.sheet.secret_values
    labels = [redact(option, known)[0].replace("\n", "␤") for option in request.options]
    notes = [note_of(request, number, known) for number in range(len(labels))]
    if row_count(request) > len(labels):
        labels.append(visible(state.picks.own) or "Custom answer")
        notes.append("")
    lines: list[DrawnLine] = []
    for number, (label, note) in enumerate(zip(labels, notes, strict=True)):
        picked, is_selected = number in state.picks.picked, number == state.picks.cursor
        role = "accent.bold" if picked else "text"
        spans: tuple[StyledSpan, ...] = (
            (f" {look.mark('cursor') if is_selected else ' '} ", "accent"),
            (f"{number + 1} ", "accent.bold" if state.armed else "faint"),
            (f"{_box(look, picked, many=request.many)} ", role),
        )
        blank: tuple[StyledSpan, ...] = ((" " * width_of(spans), "text"),)
        space = width - width_of(spans)
        note_rows = [
            (row, role if state.armed else "faint")
            for row in ([look.cut(label, space)] if brief else _wrap(label, space))
        ]
        note_rows += [(row, "soft") for row in (_wrap(note, space) if note and not brief else [])]
        lines += [
            DrawnLine((*(blank if y else spans), row), action=f"option-{number}") for y, row in enumerate(note_rows)
        ]
    if lines and row_count(request) > len(request.options):
        lines[-1] = msgspec.structs.replace(lines[-1], right=((f"{keys.shown('own_words')} ", "faint"),))
    if lines and state.doing is CardMode.READING:
        lines += [
            BLANK,
            _first_line(
                look,
                width,
                _enter(look),
                "submit selection",
                state.armed and state.read and bool(state.picks.picked),
                "enter",
            ),
        ]
    return lines


def _box(look: ThemeStyles, picked: bool, *, many: bool = False) -> str:
    if look.utf8:
        return ("■" if picked else "□") if many else ("◉" if picked else "○")
    return ("[x]" if picked else "[ ]") if many else ("(x)" if picked else "( )")


def _offer(look: ThemeStyles, key: str, label: str, live: bool, action: str = "") -> DrawnLine:
    roles = ("accent.bold", "text") if live else ("faint", "faint")
    return DrawnLine(((f" {key} ", roles[0]), (f" {label}", roles[1])), action=action)


def _first_line(look: ThemeStyles, width: int, key: str, label: str, live: bool, action: str = "") -> DrawnLine:
    return pad_first(_offer(look, key, label, live, action), _first_cells(width))


def _first_cells(width: int) -> int:
    """The least number of cells for the key that begins a row."""
    return KEYS + 2 if width >= ROOMY else 0


def _escape_line(look: ThemeStyles, width: int, label: str) -> DrawnLine:
    return _first_line(look, width, "esc", label, True, pressing("esc"))


def _enter(look: ThemeStyles) -> str:
    return shown_key("enter", look.utf8)
