"""Text input on a card: a reason, a custom answer, or an edited input, which is reviewed before it counts."""

from typing import Any

import msgspec
from textual.widget import Widget

from kasmon.model.permission import Decision
from kasmon.model.transcript.request_text import sheet
from kasmon.tui.permissions.card.text import CardMode
from kasmon.tui.permissions.card.view import CardView
from kasmon.tui.permissions.request_edit import UnfinishedEdit, get_editable_text, parse_edit


class CardEditor:
    """The text boxes of *card*, whose content *view* shows. At most one exists at a time, and has the focus."""

    def __init__(self, card: Widget, view: CardView) -> None:
        self._card, self._view = card, view
        self.box: Widget | None = None
        self._draft: str | None = None
        """The text of the last edit of the shown request."""

    def write_reason(self, decision: Decision) -> None:
        from kasmon.tui.textual_ext.inputs import LineBox  # heavy, and seldom needed

        box = LineBox(placeholder="Reason (optional, sent to the agent)", id="card-reason")
        self._view.state = msgspec.structs.replace(self._view.state, saying=decision)
        self._begin(CardMode.REASONING, box)

    def write_words(self) -> None:
        from kasmon.tui.textual_ext.inputs import LineBox  # heavy, and seldom needed

        own = self._view.state.picks.own
        self._begin(CardMode.WORDING, LineBox(own, placeholder="Custom answer (empty for none)", id="card-words"))

    def write_edit(self) -> None:
        """Edit the input; an earlier edit continues."""
        from kasmon.tui.textual_ext.inputs import EditBox  # heavy, and seldom needed

        view = self._view
        text = get_editable_text(view.request, view.state.sheet.secret_values) if self._draft is None else self._draft
        box = EditBox(text, id="card-edit", soft_wrap=True)
        box.cursor_location = box.document.end
        self._begin(CardMode.EDITING, box)

    def _begin(self, doing: CardMode, box: Widget) -> None:
        box.cursor_blink = False  # type: ignore[attr-defined]
        self.box = box
        self._card.mount(box, before=self._view.choices)
        self._card.screen.set_focus(box)  # now, as the next key may be there already
        self._view.put(doing=doing, wrong="")

    def stop(self) -> None:
        """Esc in a box: discard a reason, review an edit."""
        view, box = self._view, self.box
        if view.state.doing is CardMode.EDITING and box is not None:
            text = str(box.text)  # type: ignore[attr-defined]
            try:
                edited = parse_edit(view.request, text, view.state.sheet.secret_values)
            except UnfinishedEdit as unfinished:
                view.put(wrong=str(unfinished))
                return
            self._draft = text
            self.end()
            self._review(edited)
        else:
            self.end()
            state = view.state
            before = CardMode.TOGETHER if state.group else CardMode.REVIEWING if state.edited else CardMode.READING
            view.change(doing=before)

    def end(self) -> None:
        """Remove the box. Idempotent."""
        if self.box is not None:
            self.box.remove()
            self.box = None
            self._card.screen.set_focus(None)

    def forget(self) -> None:
        self._draft = None

    def _review(self, edited: dict[str, Any]) -> None:
        view = self._view
        if edited == view.request.input:
            view.change(doing=CardMode.READING, wrong="", edited_input=None)
            return
        changed = msgspec.structs.replace(view.request, input=edited, shown="", is_diff=False)
        view.body.read(sheet(changed, view.state.sheet.secret_values).rows)
        view.change(doing=CardMode.REVIEWING, wrong="", edited_input=edited, read=view.body.seen_end)
