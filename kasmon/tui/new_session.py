"""The dialog for a new session: who works, how, confined or not, where, and at what first."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from textual import events
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
from kasmon.tui.agent_dialog import AgentDialog
from kasmon.tui.boxes import Line
from kasmon.tui.clock import Clock
from kasmon.tui.dialog import Choice, Chosen, Field
from kasmon.tui.dialogs import Question, Sure
from kasmon.tui.keys import Keys
from kasmon.tui.look import Look
from kasmon.tui.messages import ConfinedWanted, FolderNamed
from kasmon.tui.prompt import TextBox
from kasmon.tui.reader import Sentences
from kasmon.tui.sandbox_field import SandboxField
from kasmon.tui.world import Confined, Create, Sandboxes

MODES = {Mode.TMUX: "terminal", Mode.SDK: "structured", Mode.INTERPRETER: "interpreter"}
NOBODY: Final = Offer(name="", modes=())


class NewSession(AgentDialog):
    """Name, agent, mode, sandbox, folder, first prompt, and the machine, where it is not this one."""

    title_text = "New session"

    def __init__(self, look: Look, keys: Keys, clock: Clock, workdir: str, taken: Iterable[str]) -> None:
        super().__init__(look, keys)
        self.clock = clock
        self.workdir, self.taken = workdir, frozenset(taken)
        self.folder = Line(workdir, id="folder")
        self.brings = Sentences(look, id="brings")
        self.mode = Choice(look, (), id="mode")
        self.sandbox = SandboxField(look)
        self.amount = Choice(look, (), id="size")
        self.amount_field = Field("Size", self.amount)
        self.hosts = Line(placeholder="nobody; hosts and npm, pypi, github, with commas", id="hosts")
        self.hosts_field = Field("Reaches", self.hosts)
        self.machine = Line(placeholder="this one", id="machine")
        self._asked: ConfinedWanted | None = None
        """What was asked last, of what its sandbox gets; an answer to anything else counts no more."""
        self._told_folder = workdir
        """The folder for which the sandbox was told, or asked for."""

    def inside(self) -> Iterable[Widget]:
        yield Field("Name", Line(placeholder="fix-auth", id="name"))
        yield Field("Agent", Vertical(self.agent, self.why))
        yield Field("Mode", self.mode)
        yield self.sandbox
        yield self.amount_field
        yield self.hosts_field
        yield Field("Folder", Vertical(self.folder, self.brings))
        yield Field("First prompt", TextBox(self.keys, "Empty: it waits for you", id="first-prompt"))
        yield Field("Machine", self.machine)

    def on_mount(self) -> None:
        self.offer(("enter", "start"), ("tab", "next field"), ("esc", "close"))
        self._fit()
        self.begin(self.query_one("#name", Line))
        self._name_folder()

    def offer_sandboxes(self, may_be: Sandboxes) -> None:
        """Offer to be confined so; told before the agents."""
        self.sandbox.may_be = may_be
        self.amount.put(may_be.sizes, may_be.sizes.index(may_be.size) if may_be.size in may_be.sizes else 0)
        with self.hosts.prevent(Input.Changed):  # nobody typed it
            self.hosts.value = ", ".join(map(clean_line, may_be.hosts))

    def offer_machines(self, names: Sequence[str]) -> None:
        """Offer these machines; any other can be written as well."""
        if names:
            self.machine.complete(names, f"this one; ssh knows {clean_line(', '.join(names))}")

    def on_chosen(self, message: Chosen) -> None:
        if message.choice is self.agent:
            self._offer_modes()
        elif message.choice is self.mode:
            self._offer_sandboxes(self.sandbox.tier)
        elif message.choice is self.sandbox.choice:
            self._tell_sandbox()

    def tell_confined(self, asked: ConfinedWanted, confined: Confined | None, why_not: str = "") -> None:
        """What the sandbox *asked* for would get; None where what is chosen can have none, and *why_not*."""
        if asked is self._asked:
            self.sandbox.tell(confined, why_not)
            self._go_on()

    def tell_folder(self, notice: str) -> None:
        """Why what the folder brings along does not count; nothing where there is no need to say."""
        self.brings.say(*([(clean_line(notice), Token.NOTICE)] if notice else []))

    def on_input_blurred(self, event: Input.Blurred) -> None:
        if event.input in (self.folder, self.machine):
            self._name_folder()
            self._tell_folders_sandbox()

    def _name_folder(self) -> None:
        """Have said what there is to say of the folder; of one on another machine there is nothing."""
        self.brings.say()
        if not self.machine.value.strip():
            self.post_message(FolderNamed(self._folder))

    def _agents_known(self) -> None:
        missing = ", ".join(offer.name for offer in self.offers or () if offer.problem)
        if self.agent.options and missing:
            self.why.say((f"not installed: {clean_line(missing)}", Token.FAINT))
        self._offer_modes()

    def _offer_modes(self) -> None:
        self.mode.put([MODES[mode] for mode in self._modes()])
        self._offer_sandboxes(self._offer.sandbox)

    def _offer_sandboxes(self, wanted: str) -> None:
        self.sandbox.offer(self._mode, self._offer.confines, wanted)
        self._tell_sandbox()

    def _tell_sandbox(self) -> None:
        """Say what the sandbox gets; whoever knows is asked."""
        self._fit()
        self._asked, self._told_folder = None, self._folder
        if self.sandbox.say():
            self._asked = ConfinedWanted(self.agent.value, self._mode, self._folder, self.sandbox.tier)
            self.post_message(self._asked)

    def _tell_folders_sandbox(self) -> None:
        """Say it anew where the folder is another now: it sees that one, and that may have a config of its own."""
        if self._folder != self._told_folder and not self.machine.value.strip():
            self._tell_sandbox()

    def _fit(self) -> None:
        """Show the fields that mean something for what is chosen."""
        is_interpreter = self._mode is Mode.INTERPRETER
        self.hosts_field.display = is_interpreter
        has_size = self.sandbox.tier != "e2b"  # there it is its template's
        self.amount_field.display = is_interpreter and has_size and len(self.amount.options) > 1

    @property
    def _offer(self) -> Offer:
        return next((offer for offer in self.offers or () if offer.name == self.agent.value), NOBODY)

    @property
    def _mode(self) -> Mode | None:
        modes = self._modes()
        return modes[self.mode.chosen] if modes else None

    @property
    def _folder(self) -> str:
        return self.folder.value.strip()

    def _modes(self) -> tuple[Mode, ...]:
        return self._offer.modes

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter" and isinstance(self.focused, Choice):
            event.stop()
            self._act()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._act()

    def on_text_box_submitted(self, event: TextBox.Submitted) -> None:
        event.stop()
        self._act()

    def _act(self) -> None:
        name = self.query_one("#name", Line).value.strip()
        if not name:
            self._complain_at("name", "A session needs a name.", "It is how you find it in the list.")
        elif name in self.taken:
            self._complain_at("name", f"There is a session called {clean_line(name)} already.", "Names are unique.")
        elif not self._await_agents() and self.agent.options:
            self._create(name)

    def _create(self, name: str) -> None:
        machine = self.machine.value.strip()
        self._tell_folders_sandbox()
        sandbox = self.sandbox.tier if self.sandbox.is_open else None
        if self.sandbox.why_not and not machine:
            self._complain_at("sandbox-choice", self.sandbox.why_not.split("\n")[0], "Take another sandbox.")
            return
        if sandbox and self.sandbox.is_asked and not machine:
            self._await("it is known what its sandbox gets")
            return
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
        if mode is Mode.INTERPRETER:
            wanted = msgspec.structs.replace(wanted, size=self._wanted_size(), hosts=self._hosts())
        confined = self.sandbox.confined
        if sandbox and confined is not None and not confined.is_agreed:
            self._ask_agreement(wanted, confined)
        else:
            self.want(wanted)

    def _wanted_size(self) -> str | None:
        """None where it is what the config says, or nobody chose."""
        is_usual = not self.amount_field.display or self.amount.value == self.sandbox.may_be.size
        return None if is_usual else self.amount.value

    def _hosts(self) -> tuple[str, ...] | None:
        """Likewise."""
        hosts = tuple(host for host in re.split(r"[\s,]+", self.hosts.value) if host)
        return None if hosts == self.sandbox.may_be.hosts else hosts

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
