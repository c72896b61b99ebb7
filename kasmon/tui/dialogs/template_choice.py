"""The template of a new session in its dialog: the choice, what it sets, and its fields to fill in."""

from collections.abc import Mapping
from typing import Final

from textual.containers import Vertical

from kasmon.config.prompt_template import prompt_fields
from kasmon.config.schema import TemplateConfig
from kasmon.errors import UsageError
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.fields import ChoiceField, DialogField
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences

NONE: Final = "none"


class TemplateField(DialogField):
    """The choice, and what the chosen template sets that no other field shows; hidden where there is none."""

    def __init__(self, look: ThemeStyles) -> None:
        self.choice = ChoiceField(look, (NONE,), id="template")
        self.note = Sentences(look, id="template-note")
        self.boxes = Vertical(id="template-fields")
        """A field for each field of the template's prompt, to be placed below the prompt."""
        self.boxes.display = False
        super().__init__("Template", Vertical(self.choice, self.note))
        self.display = False
        self._templates: Mapping[str, TemplateConfig] = {}
        self._inputs: dict[str, LineInput] = {}

    @property
    def chosen(self) -> TemplateConfig | None:
        return [None, *self._templates.values()][self.choice.chosen]

    @property
    def first_empty(self) -> LineInput | None:
        return next((box for box in self._inputs.values() if not box.value.strip()), None)

    def values_for(self, prompt: str) -> dict[str, str]:
        """Return the text of each field in *prompt*, which the user may have edited.

        Raises:
            UsageError: if one is empty, or none of the template's, or as `prompt_fields`.
        """
        for name in (fields := prompt_fields(prompt)):
            if name not in self._inputs:
                known = ", ".join(self._inputs) or "none"
                raise UsageError(f"the template has no field {name!r}.", hint=f"Its fields: {known}.")
            if not self._inputs[name].value.strip():
                raise UsageError(f"the field {name!r} is empty.", hint="Fill it in, or remove it from the prompt.")
        return {name: self._inputs[name].value for name in fields}

    def offer(self, templates: Mapping[str, TemplateConfig]) -> bool:
        """Offer *templates*, and return whether the chosen one is another than before."""
        before, name = self.chosen, self.choice.value
        self._templates = dict(templates)
        index = [*self._templates].index(name) + 1 if name in self._templates else 0
        self.choice.put([NONE, *map(clean_line, self._templates)], index)
        self.display = bool(self._templates)
        return self.chosen != before

    def show(self, prompt: str, *, is_agent_missing: bool) -> None:
        """Show what the chosen template sets, and inputs for the fields of its *prompt*.

        *is_agent_missing*: whether its agent cannot be started here.
        """
        template = self.chosen
        facts = () if template is None else (("account", template.account), ("tags", ", ".join(template.tags)))
        text = ", ".join(f"{name}: {clean_line(value)}" for name, value in facts if value)
        lines = [(text, Token.FAINT)] if text else []
        if template is not None and is_agent_missing:
            lines.append((f"The agent {clean_line(template.agent)!r} cannot be started here.", Token.ERROR))
        self.note.say(*lines)
        values = {name: box.value for name, box in self._inputs.items()}
        fields = prompt_fields(prompt)
        self._inputs = {name: LineInput(values.get(name, "")) for name in fields}
        self.boxes.remove_children()
        self.boxes.mount(*(DialogField(name, box) for name, box in self._inputs.items()))
        self.boxes.display = bool(fields)
