"""The dialogs of the finish screen: the options of an action, and the name that confirms a discard."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from textual.widget import Widget

from kasmon.model.transcript.text import Token
from kasmon.supervisor.finish.finish_plan import FinishRequest, PlannedFinish
from kasmon.supervisor.finish.merge_plan import OnConflict
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import ChoiceField, DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.transcript.prompt_box import TextBox
from kasmon.tui.widgets.reader import Sentences

BuildRequest: TypeAlias = Callable[[str, Sequence[str]], FinishRequest]
"""Builds the request from the typed text and the chosen options."""


DRAFT: Final = "draft"
FETCH: Final = "yes, the base"
MERGES: Final[Mapping[str, Literal["merge", "squash", "ff"]]] = {
    "merge commit": "merge",
    "one commit (squash)": "squash",
    "fast-forward": "ff",
}
CONFLICTS: Final[Mapping[str, Literal["abort", "keep", "send"]]] = {
    "change nothing": "abort",
    "leave them to me": "keep",
    "send them to the agent": "send",
}
ON_CONFLICT: Final[Mapping[str, OnConflict]] = {
    "stop here": "stop",
    "leave it out": "skip",
    "leave it out, ask its agent": "send",
}


class FinishOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a dialog asks before an action is planned."""

    title: str
    build: BuildRequest
    text_label: str = ""
    """The label of the text; empty for none. `message` has several lines."""
    text: str = ""
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Label and options of each choice; the first option is chosen at first."""


def commit_options(message: str) -> FinishOptions:
    return FinishOptions(
        title="Commit all changes",
        text_label="message",
        text=message,
        build=lambda text, chosen: FinishRequest(commits=True, message=text),
    )


def update_options() -> FinishOptions:
    return FinishOptions(
        title="Update from the base",
        choices=(
            ("By", ("rebase", "merge")),
            ("Conflicts", tuple(CONFLICTS)),
            ("Fetch first", ("no", FETCH)),
        ),
        build=lambda text, chosen: FinishRequest(
            update="merge" if chosen[0] == "merge" else "rebase",
            conflicts=CONFLICTS[chosen[1]],
            fetches=chosen[2] == FETCH,
        ),
    )


def proposal_options(message: str) -> FinishOptions:
    return FinishOptions(
        title="Open a pull request",
        text_label="Title",
        text=message.partition("\n")[0],
        choices=(("As", ("ready for review", DRAFT)),),
        build=lambda text, chosen: FinishRequest(proposes=True, is_draft=chosen[0] == DRAFT, message=text),
    )


def merge_options(message: str) -> FinishOptions:
    return FinishOptions(
        title="Merge into the base",
        text_label="Message",
        text=message.partition("\n")[0],
        choices=(("As", tuple(MERGES)),),
        build=lambda text, chosen: FinishRequest(merge=MERGES[chosen[0]], message=text),
    )


class OptionsDialog(Dialog):
    """Asks for the options of an action; *then* gets the request, and closes the dialog once it is planned."""

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        options: FinishOptions,
        then: Callable[["OptionsDialog", FinishRequest], None],
    ) -> None:
        super().__init__(look, keys)
        self.title_text, self.options, self.then = options.title, options, then
        self.choices = [ChoiceField(look, labels) for _, labels in options.choices]
        self.box: TextBox | LineInput | None = None
        if options.text_label == "message":
            self.box = TextBox(keys, "Type a message", options.text, id="message")
        elif options.text_label:
            self.box = LineInput(options.text, id="finish-text")

    def inside(self) -> Iterable[Widget]:
        if isinstance(self.box, TextBox):
            yield self.box
        elif self.box is not None:
            yield DialogField(self.options.text_label, self.box)
        for (label, _), field in zip(self.options.choices, self.choices, strict=True):
            yield DialogField(label, field)

    def on_mount(self) -> None:
        newline = self.keys.shown("newline", self.look.utf8)
        several = [(newline, "new line")] if isinstance(self.box, TextBox) else []
        fields = [("tab", "next field")] if len(self.choices) + (self.box is not None) > 1 else []
        self.offer(("enter", "review"), *several, *fields, ("esc", "cancel"))
        self.begin(self.box or self.choices[0])

    def submit(self) -> None:
        box = self.box
        text = box.text if isinstance(box, TextBox) else box.value if box is not None else ""
        if box is not None and not text.strip():
            self.complain(f"the {self.options.text_label} is empty.", "Type one.")
        elif self.begin_operation():
            self.then(self, self.options.build(text.strip(), [choice.value for choice in self.choices]))


class ConflictDialog(Dialog):
    """Asks what is done with a branch that conflicts; *then* gets the answer, once: to stop, if it is closed."""

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, title: str, problem: str, then: Callable[[OnConflict], None]
    ) -> None:
        super().__init__(look, keys)
        self.title_text, self.then = title, then
        self.about = Sentences(look, (problem, Token.TEXT))
        self.choice = ChoiceField(look, tuple(ON_CONFLICT))

    def inside(self) -> Iterable[Widget]:
        yield self.about
        yield DialogField("Do", self.choice)

    def on_mount(self) -> None:
        self.offer(("enter", "do this"), ("esc", "stop"))
        self.begin(self.choice)

    def submit(self) -> None:
        if self.begin_operation():
            self.then(ON_CONFLICT[self.choice.value])
            self.dismiss()

    def on_unmount(self) -> None:
        self.then("stop")


class DiscardDialog(Dialog):
    """Shows what a discard removes; only the typed name of the session or its branch confirms it."""

    title_text = "Discard"

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, plan: PlannedFinish, names: Sequence[str], lines: Sequence[str],
        then: Callable[[PlannedFinish], None],
    ) -> None:  # fmt: skip
        super().__init__(look, keys)
        self.plan, self.names, self.then = plan, tuple(names), then
        asks = f"Type {' or '.join(map(repr, names))} to discard it."
        self.about = Sentences(look, *((line, Token.TEXT) for line in lines), (asks, Token.NOTICE))
        self.box = LineInput(id="discard-name")

    def inside(self) -> Iterable[Widget]:
        yield self.about
        yield DialogField("Its name", self.box)

    def on_mount(self) -> None:
        self.offer(("enter", "discard"), ("esc", "cancel"))
        self.begin(self.box)

    def submit(self) -> None:
        name = self.box.value.strip()
        if name not in self.names:
            self.complain(f"{name!r} is not the name.", f"Type {' or '.join(map(repr, self.names))}.")
        elif self.begin_operation():
            self.dismiss()
            self.then(self.plan)
