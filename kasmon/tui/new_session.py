"""The dialog for a new session: who works, how, confined or not, where, and at what first."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input

from kasmon.clean import clean_line
from kasmon.config.address import split
from kasmon.config.profile import Offer
from kasmon.errors import UsageError
from kasmon.model.command import Mode
from kasmon.model.text import Token
from kasmon.paths import expanded
from kasmon.tui.boxes import Line
from kasmon.tui.clock import Clock
from kasmon.tui.dialog import Choice, Chosen, Dialog, Field
from kasmon.tui.dialogs import Question, Sure
from kasmon.tui.keys import Keys
from kasmon.tui.look import Look
from kasmon.tui.messages import ConfinedWanted
from kasmon.tui.prompt import TextBox
from kasmon.tui.reader import Sentences
from kasmon.tui.world import Confined, Create

MODES = {Mode.TMUX: "terminal", Mode.SDK: "structured", Mode.INTERPRETER: "interpreter"}
NOBODY: Final = Offer(name="", modes=())
INTERPRETERS: Final = (
    "Persistent python, bash and node with shared files, in a folder of its own unless you write another."
)


class NewSession(Dialog):
    """Name, agent, mode, sandbox, folder, first prompt, and the machine, where it is not this one."""

    title_text = "New session"

    def __init__(self, look: Look, keys: Keys, clock: Clock, workdir: str, taken: Iterable[str]) -> None:
        super().__init__(look, keys)
        self.clock = clock
        self.offers: tuple[Offer, ...] = ()
        self.workdir, self.taken = workdir, frozenset(taken)
        self.agent = Choice(look, (), id="agent")
        self.folder = Line(workdir, id="folder")
        self.mode = Choice(look, (), id="mode")
        self.sandbox = Choice(look, (), id="sandbox-choice")
        self.gets = Sentences(look, id="gets")
        self.sandbox_field = Field("Sandbox", Vertical(self.sandbox, self.gets))
        self.sandbox_field.display = False
        self.confined: Confined | None = None
        """What its sandbox would get, once that is known."""
        self.why = Sentences(look, id="why")
        self.machine = Line(placeholder="this one", id="machine")

    def inside(self) -> Iterable[Widget]:
        yield Field("Name", Line(placeholder="fix-auth", id="name"))
        yield Field("Agent", Vertical(self.agent, self.why))
        yield Field("Mode", self.mode)
        yield self.sandbox_field
        yield Field("Folder", self.folder)
        yield Field("First prompt", TextBox(self.keys, "Empty: it waits for you", id="first-prompt"))
        yield Field("Machine", self.machine)

    def on_mount(self) -> None:
        self.offer(("⏎" if self.look.utf8 else "enter", "start"), ("tab", "next field"), ("esc", "close"))
        self.begin(self.query_one("#name", Line))

    def offer_agents(self, offers: Sequence[Offer]) -> None:
        """Offer these agents; they come a moment later than the dialog."""
        self.offers = tuple(offers)
        self.agent.put([offer.name for offer in self.offers if not offer.problem])
        missing = [f"{offer.name}: {offer.problem}" for offer in self.offers if offer.problem]
        if not self.agent.options:
            reasons = [(clean_line(why), Token.NOTICE) for why in missing]
            self.why.say(("No agent can be started.", Token.ERROR), *reasons)
        elif missing:
            names = ", ".join(offer.name for offer in self.offers if offer.problem)
            self.why.say((f"not installed: {clean_line(names)}", Token.FAINT))
        self._offer_modes()

    def offer_machines(self, names: Sequence[str]) -> None:
        """Offer these machines; any other can be written as well."""
        if names:
            self.machine.complete(names, f"this one; ssh knows {clean_line(', '.join(names))}")

    def on_chosen(self, message: Chosen) -> None:
        message.stop()
        if message.choice is self.agent:
            self._offer_modes()
        elif message.choice is self.mode:
            self._offer_sandboxes(self.sandbox.value)
        elif message.choice is self.sandbox:
            self._tell_sandbox()

    def tell_confined(self, confined: Confined | None, why_not: str = "") -> None:
        """What the sandbox of what is chosen would get; None where it can have none, and *why_not*."""
        self.confined = confined
        if confined is None:
            self.gets.say((clean_line(why_not), Token.ERROR))
        elif self.sandbox.value == "jail":
            self.gets.say(*((clean_line(line), Token.FAINT) for line in confined.lines))

    def _offer_modes(self) -> None:
        self.mode.put([MODES[mode] for mode in self._modes()])
        self._offer_sandboxes(self._offer.sandbox)

    def _offer_sandboxes(self, wanted: str) -> None:
        jails, mode = self._offer.jails, self._mode
        options = ["jail"] if mode is Mode.INTERPRETER else ["none", *(["jail"] if mode in jails else [])]
        self.sandbox.put(options, options.index("jail") if wanted == "jail" and "jail" in options else 0)
        self.sandbox.can_focus = len(options) > 1
        self.sandbox_field.display = options != ["none"]
        self._tell_sandbox()

    def _tell_sandbox(self) -> None:
        """Say what the sandbox gets; whoever knows is asked."""
        self.confined = None
        self.gets.say()
        if self._mode is Mode.INTERPRETER:
            self.gets.say((INTERPRETERS, Token.FAINT))
        elif self.sandbox.value == "jail":
            self.post_message(ConfinedWanted(self.agent.value, self._mode, self._folder))

    @property
    def _offer(self) -> Offer:
        return next((offer for offer in self.offers if offer.name == self.agent.value), NOBODY)

    @property
    def _mode(self) -> Mode | None:
        modes = self._modes()
        return modes[self.mode.chosen] if modes else None

    @property
    def _folder(self) -> str:
        return self.folder.value.strip()

    def _modes(self) -> tuple[Mode, ...]:
        return self._offer.modes

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._start()

    def on_text_box_submitted(self, event: TextBox.Submitted) -> None:
        event.stop()
        self._start()

    def _start(self) -> None:
        name = self.query_one("#name", Line).value.strip()
        if not name:
            self._complain_at("name", "A session needs a name.", "It is how you find it in the list.")
        elif name in self.taken:
            self._complain_at("name", f"There is a session called {clean_line(name)} already.", "Names are unique.")
        elif not self.offers:
            self.complain("The agents are still being looked for.", "Try again in a moment.")
        elif self.agent.options:
            self._create(name)

    def _create(self, name: str) -> None:
        machine, sandbox = self.machine.value.strip(), None
        if len(self.sandbox.options) > 1:
            sandbox = "jail" if self.sandbox.value == "jail" else ""
        agent, folder, mode = self.agent.value, self._folder, self._mode
        workdir = str(expanded(folder)) if folder else ""
        if mode is Mode.INTERPRETER:
            if machine:
                self._complain_at("machine", "Sandboxes are made on this machine only.", "Leave it empty.")
                return
            workdir = "" if folder == self.workdir else workdir  # its own, unless somebody wrote another
        elif machine:
            agent, mode = f"{agent}@{machine}", Mode.TMUX
            workdir = "" if folder == self.workdir else folder  # ours is none of its folders
            try:
                split(agent)
            except UsageError as error:
                self._complain_at("machine", error.message, error.hint)
                return
        prompt = self.query_one("#first-prompt", TextBox).text.strip()
        wanted = Create(name=name, agent=agent, mode=mode, workdir=workdir, prompt=prompt, sandbox=sandbox)
        if sandbox and self.confined is not None and not self.confined.is_agreed:
            self._ask_agreement(wanted, self.confined)
        else:
            self.want(wanted)

    def _ask_agreement(self, wanted: Create, confined: Confined) -> None:
        """What is handed to a sandbox leaves kasmon's hands: a person says once that it may."""

        def agree(dialog: Sure) -> None:
            dialog.dismiss()
            self.want(msgspec.structs.replace(wanted, agrees=True))

        lines = (f"{wanted.agent} starts in a sandbox that is handed this:", *confined.lines)
        question = Question("What its sandbox gets", lines, "agree, and start it")
        self.app.push_screen(Sure(self.look, self.keys, self.clock, question, agree))

    def _complain_at(self, field: str, problem: str, hint: str) -> None:
        self.complain(problem, hint)
        self.set_focus(self.query_one(f"#{field}"))
