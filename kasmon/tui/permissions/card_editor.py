"""Text input on a card: a reason, a custom answer, or an edited input, which is reviewed before it counts."""

from typing import Any

import msgspec
from textual.widget import Widget

from kasmon.model.permission import Decision
from kasmon.tui.permissions import question_picks
from kasmon.tui.permissions.card_text import CardMode
from kasmon.tui.permissions.card_view import PermissionCardView
from kasmon.tui.permissions.request_edit import UnfinishedEdit, can_edit, editable, edited_input
from kasmon.tui.permissions.request_text import sheet


class EditableCard(PermissionCardView):
    """A card with text input. At most one box exists at a time, and has the focus."""

    _writing: Widget | None = None
    _draft: str | None = None

    def said(self, decision: Decision, reason: str) -> None:
        """Send the answer *decision* with the typed *reason*."""
        raise NotImplementedError

    def may_approve(self) -> str:
        """Return why this request cannot be approved right now; empty if it can."""
        return "" if self._state.read else "Scroll to the end first: there is more below."

    def _write_reason(self, decision: Decision) -> None:
        from kasmon.tui.textual_ext.inputs import LineBox  # heavy, and seldom needed

        box = LineBox(placeholder="Reason (optional, sent to the agent)", id="card-reason")
        self._state = msgspec.structs.replace(self._state, saying=decision)
        self._begin_writing(CardMode.REASONING, box)

    def _write_words(self) -> None:
        from kasmon.tui.textual_ext.inputs import LineBox  # heavy, and seldom needed

        box = LineBox(self._state.picks.own, placeholder="Custom answer (empty for none)", id="card-words")
        self._begin_writing(CardMode.WORDING, box)

    def on_input_submitted(self, event: Any) -> None:
        event.stop()
        if not self._fits:
            return
        said = str(event.value).strip()
        is_reason = self._state.doing is CardMode.REASONING
        self._end_writing()
        if is_reason:
            self.said(self._state.saying, said)
        else:
            picks = question_picks.worded(self.request, self._state.picks, said)
            self._change(doing=CardMode.READING, picks=picks)

    def _write_edit(self) -> None:
        if Decision.EDIT not in self.request.choices or not self.request.input:
            self.ignore("The agent accepts no edited input for this request.")
            return
        if not can_edit(self.request):
            self.ignore("Cannot edit this input: a text box would change some of its characters.")
            return
        if why := self.may_approve():
            self.ignore(why)
            return
        from kasmon.tui.textual_ext.inputs import EditBox  # heavy, and seldom needed

        text = editable(self.request, self._known()) if self._draft is None else self._draft
        box = EditBox(text, id="card-edit", soft_wrap=True)
        box.cursor_location = box.document.end
        self._begin_writing(CardMode.EDITING, box)

    def _begin_writing(self, doing: CardMode, box: Widget) -> None:
        box.cursor_blink = False  # type: ignore[attr-defined]
        self._writing = box
        self.mount(box, before=self.choices)
        self.screen.set_focus(box)  # now, as the next key may be there already
        self._put(doing=doing, wrong="")

    def _stop_writing(self) -> None:
        """Esc in a box: discard a reason, review an edit."""
        box = self._writing
        if self._state.doing is CardMode.EDITING and box is not None:
            text = str(box.text)  # type: ignore[attr-defined]
            try:
                self._edited = edited_input(self.request, text, self._known())
            except UnfinishedEdit as unfinished:
                self._put(wrong=str(unfinished))
                return
            self._draft = text
            self._end_writing()
            self._review()
        else:
            self._end_writing()
            before = (
                CardMode.TOGETHER if self._state.together else CardMode.REVIEWING if self._edited else CardMode.READING
            )
            self._change(doing=before)

    def _end_writing(self) -> None:
        if self._writing is not None:
            self._writing.remove()
            self._writing = None
            self.screen.set_focus(None)

    def _review(self) -> None:
        if self._edited == self.request.input:
            self._edited = None
            self._change(doing=CardMode.READING, wrong="", edited=False)
            return
        changed = msgspec.structs.replace(self.request, input=self._edited or {}, shown="", is_diff=False)
        edited = sheet(changed, self._known())
        self.body.read(edited.rows)
        self._change(doing=CardMode.REVIEWING, wrong="", edited=True, read=self.body.seen_end)

    def _known(self) -> tuple[str, ...]:
        return self._state.sheet.known
