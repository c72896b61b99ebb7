"""The dialog for a new session: template, agent, mode, sandbox, folder, worktree, conversation, and first prompt."""

import itertools
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, cast

from textual import events
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input

from kasmon.config.agent_address import split
from kasmon.config.profile import ProfileOffer
from kasmon.config.schema import TemplateConfig
from kasmon.errors import KasmonError, UsageError
from kasmon.model.commands import Mode
from kasmon.model.transcript.text import Token
from kasmon.paths import expanded
from kasmon.sanitize import clean_line
from kasmon.tui.actions.dialogs import confirm_action
from kasmon.tui.dialogs.agent_choice import AgentChoice
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.conversation_choice import ConversationField
from kasmon.tui.dialogs.fields import ChoiceChanged, ChoiceField, DialogField, MoreToggle
from kasmon.tui.dialogs.folder_choice import FolderField
from kasmon.tui.dialogs.sandbox_choice import SandboxField
from kasmon.tui.dialogs.template_choice import TemplateField
from kasmon.tui.dialogs.worktree_choice import SessionLocation, WorkInField
from kasmon.tui.error_text import sentence, what_failed
from kasmon.tui.gateway.protocol import Gateway, Operation, SandboxChoices, SandboxPreview
from kasmon.tui.keymap import KeyMap
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.transcript.prompt_box import TextBox

if TYPE_CHECKING:
    from kasmon.model.sandbox.policy import Tier
    from kasmon.tui.gateway.operations import Operations

LONGEST_PART: Final = 24
"""Most characters of a folder's or an agent's name in a default session name."""
UNFIT: Final = re.compile(r"[^\w.-]+")
"""Characters of these names that a default session name cannot contain."""
MODES = {Mode.TMUX: "terminal", Mode.SDK: "structured", Mode.INTERPRETER: "interpreter"}
OWN_LOGIN: Final = "its own log-in"
NO_OFFER: Final = ProfileOffer(name="", modes=())
NO_TEMPLATE: Final = TemplateConfig()


class NewSessionDialog(Dialog):
    """Name, agent, mode, folder, first prompt, and in a git repository what it works in; its account, if the config
    names some for its agent; folded under *more* an earlier conversation, the sandbox, and the machine if it is
    another.

    Confirming before everything is loaded takes effect once it is; a change before then cancels it.
    """

    title_text = "New session"

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, workdir: str, taken: Iterable[str], recent: Sequence[str] = ()
    ) -> None:
        """*recent* are the folders of the sessions that were started last, the last one first."""
        super().__init__(look, keys)
        self.agent = AgentChoice(look)
        self.workdir, self.taken = workdir, frozenset(taken)
        self.name_box = LineInput(id="name")
        self.template = TemplateField(look)
        self.prompt_box = TextBox(keys, "Optional", id="first-prompt")
        self.folder = FolderField(look, workdir, recent)
        self.more = MoreToggle(look)
        self.work_in = WorkInField(look)
        self.mode = ChoiceField(look, (), id="mode")
        self.account = ChoiceField(look, (), id="account")
        self.account_field = DialogField("Account", self.account)
        self.conversation = ConversationField(look)
        self.sandbox = SandboxField(look)
        self.amount = ChoiceField(look, (), id="size")
        self.amount_field = DialogField("Size", self.amount)
        self.hosts = LineInput(placeholder="none; hosts, npm, pypi or github, comma-separated", id="hosts")
        self.hosts_field = DialogField("Network", self.hosts)
        self.machine = LineInput(placeholder="local", id="machine")
        self.machine_field = DialogField("Machine", self.machine)
        self._preview_folder = workdir
        """The folder of the last shown or requested sandbox preview."""
        self._accounts: tuple[str, ...] = ("",)
        """The accounts that can be chosen; empty is the agent's own log-in."""
        self._template_prompt = ""
        """The prompt of the chosen template, if it is, or was, in the box; else the prompt is the user's own."""

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Name", self.name_box)
        yield self.template
        yield DialogField("Agent", Vertical(self.agent.field, self.agent.why))
        yield DialogField("Mode", self.mode)
        yield self.account_field
        yield self.folder
        yield DialogField("Prompt", self.prompt_box)
        yield self.template.boxes
        yield self.work_in
        yield DialogField("More", self.more)
        yield self.sandbox
        yield self.amount_field
        yield self.hosts_field
        yield self.machine_field
        yield self.conversation

    def on_mount(self) -> None:
        self.offer(("enter", "start"), ("tab", "next field"), ("esc", "close"))
        self._fit()
        self.begin(self.name_box)
        if (gateway := self.dashboard.gateway) is not None:
            self.folder.complete(gateway.folders)
            self.run_worker(self._load(gateway), group="offers")
        self._show_folder_notice()
        self._start(self._load_worktrees, "worktrees")
        self._start(self._load_templates, "templates")

    def _start(self, load: Callable[[Gateway], Coroutine[object, object, None]], group: str) -> None:
        """Run *load* in place of the last one of *group*, if that still runs."""
        if (gateway := self.dashboard.gateway) is not None:
            self.run_worker(load(gateway), group=group, exclusive=True)

    async def _load(self, gateway: Gateway) -> None:
        try:
            self._put_sandboxes(await gateway.sandboxes())
            self.offer_agents(await gateway.offers(self.workdir))
        except KasmonError as error:
            self._handle_edit()
            self.agent.fail(error)
        else:
            self._put_machines(await gateway.machines())

    def takes(self, key: events.Key) -> bool:
        if self.focused is self.folder.box and not self.is_opening and self.folder.takes(key):
            return True
        if self.focused is self.work_in.choice and not self.is_opening and self.work_in.takes(key):
            return True
        return super().takes(key)

    def _put_sandboxes(self, may_be: SandboxChoices) -> None:
        self.sandbox.may_be = may_be
        self.amount.put(may_be.sizes, may_be.sizes.index(may_be.size) if may_be.size in may_be.sizes else 0)
        with self.hosts.prevent(Input.Changed):  # the user did not type it
            self.hosts.value = ", ".join(map(clean_line, may_be.hosts))

    def _put_machines(self, names: Sequence[str]) -> None:
        """Offer the registered machines, and *names* of ssh hosts; any other can be typed as well."""
        known = {"machines": self._registered, "ssh hosts": [name for name in names if name not in self._registered]}
        listed = [f"{kind}: {clean_line(', '.join(each))}" for kind, each in known.items() if each]
        if listed:
            self.machine.complete([*self._registered, *names], "; ".join(("local", *listed)))

    @property
    def _registered(self) -> list[str]:
        """The registered machines: kasmon there starts the session, in any mode."""
        return [each.machine.name for each in self.dashboard.machines]

    def on_choice_changed(self, message: ChoiceChanged) -> None:
        message.stop()
        self._handle_edit()
        if message.choice is self.agent.field:
            self._offer_modes()
        elif message.choice is self.mode:
            self._offer_sandboxes(self.sandbox.tier)
        elif message.choice is self.sandbox.choice:
            self._show_preview()
        elif message.choice is self.template.choice:
            self._apply_template()
        elif message.choice in (self.account, self.conversation.choice):
            self._show_conversations()
        elif message.choice is self.work_in.choice:
            self.work_in.is_chosen = True
            self.work_in.explain()

    def offer_agents(self, offers: Sequence[ProfileOffer]) -> None:
        self.agent.offer(offers)
        missing = ", ".join(offer.name for offer in offers if offer.problem)
        if self.agent.can_start and missing:
            self.agent.why.say((f"not installed: {clean_line(missing)}", Token.FAINT))
        if self.template.chosen is None:
            self._offer_modes()
        else:
            self._apply_template()
        self.submit_if_confirmed()

    def on_input_changed(self, event: Input.Changed | None = None) -> None:
        super().on_input_changed()
        self._show_default_name()
        self._fit()

    def on_more_toggle_toggled(self, message: MoreToggle.Toggled) -> None:
        message.stop()
        self._fit()
        if self.more.is_open:
            hidden = (self.sandbox.choice, self.amount, self.hosts, self.machine)
            self.set_focus(next(field for field in hidden if field.can_focus and _is_shown(field)))

    async def _load_templates(self, gateway: Gateway) -> None:
        try:
            templates = await gateway.templates(self.folder.value)
        except KasmonError:
            templates = {}  # the notice on the folder's config says why
        if self.template.offer(templates):
            self._apply_template()

    def _apply_template(self) -> None:
        """Fill in what the chosen template sets; a prompt that the user wrote stays."""
        template = self.template.chosen or NO_TEMPLATE
        if self.prompt_box.text in ("", self._template_prompt):
            self.prompt_box.text = self._template_prompt = template.prompt
        else:
            self._template_prompt = ""
        agents, is_missing = self.agent.field.options, False
        if template.agent in agents:
            self.agent.field.put(agents, agents.index(template.agent))
        elif template.agent:
            is_missing = self.agent.is_loaded
        self.template.show(self._template_prompt, is_agent_missing=is_missing)
        self.work_in.preset(template.worktree, template.base)
        self._offer_modes(template)
        self.machine.value = template.machine
        self.more.is_open = self.more.is_open or bool(template.machine)
        self._fit()

    def _show_default_name(self) -> None:
        self.name_box.stand_in(self._default_name())

    def _default_name(self) -> str:
        """A name made of the folder and the agent that no session has."""
        folder = expanded(self.folder.value).name or self.machine.value.strip()
        parts = (UNFIT.sub("-", clean_line(part)).strip("-.")[:LONGEST_PART] for part in (folder, self.agent.value))
        made = "-".join(filter(None, parts)) or "session"
        numbered = (made if number == 1 else f"{made}-{number}" for number in itertools.count(1))
        return next(name for name in numbered if name not in self.taken)

    def on_input_blurred(self, event: Input.Blurred) -> None:
        if event.input in (self.folder.box, self.machine):
            self._show_folder_notice()
            self._refresh_preview()
        if event.input in (self.folder.box, self.work_in.base):
            self._start(self._load_worktrees, "worktrees")
        if event.input is self.folder.box:
            self._start(self._load_templates, "templates")
            self._show_conversations()

    @property
    def _offers_conversations(self) -> bool:
        """Whether its agent may have conversations from before: one in a new sandbox, or elsewhere, has none here."""
        is_here = not self.machine.value.strip()
        return is_here and self._mode in (Mode.TMUX, Mode.SDK) and not self.sandbox.tier

    def _show_conversations(self) -> None:
        """List the conversations of its agent if the user wants an earlier one, unless these are listed."""
        key = self.agent.value, self._mode, self.folder.value, self._requested_account()
        if self.conversation.is_earlier and self.conversation.loaded == key:
            return
        self.workers.cancel_group(self, "conversations")
        self.conversation.begin_loading()
        is_wanted = self.conversation.is_earlier and self._offers_conversations and self.agent.can_start
        if is_wanted:
            self._start(partial(self._load_conversations, key=key), "conversations")
        self._fit()

    async def _load_conversations(self, gateway: Gateway, key: tuple[str, Mode | None, str, str]) -> None:
        try:
            self.conversation.show(await gateway.conversations(*key), key)
        except KasmonError as error:
            self.conversation.fail(f"{sentence(error.message)} {error.hint}".strip(), key)
        self.submit_if_confirmed()

    async def _load_worktrees(self, gateway: Gateway) -> None:
        folder = self.folder.value
        try:
            choices = await gateway.worktrees(folder, self.work_in.base.value.strip())
        except KasmonError:
            choices = None  # git says why as soon as a worktree is created there
        self.work_in.offer(folder, choices, is_default=self._offer.worktree)
        self._fit()
        self.submit_if_confirmed()

    def _show_folder_notice(self) -> None:
        """Show the notice on the folder's config; there is none for a folder on another machine."""
        self.folder.show_notice()
        if not self.machine.value.strip():
            self._start(self._load_folder_notice, "folder")

    async def _load_folder_notice(self, gateway: Gateway) -> None:
        try:
            notice = await gateway.folder_notice(self.folder.value)
        except KasmonError as error:
            notice = sentence(error.message)
        self.folder.show_notice(notice)

    def _offer_modes(self, template: TemplateConfig = NO_TEMPLATE) -> None:
        modes = self._offer.modes
        self._accounts = ("", *dict.fromkeys((*self._offer.accounts, *filter(None, [template.account]))))
        self.mode.put(
            [MODES[mode] for mode in modes], modes.index(Mode(template.mode)) if template.mode in modes else 0
        )
        accounts = (OWN_LOGIN, *map(clean_line, self._accounts[1:]))
        self.account.put(accounts, self._accounts.index(template.account))
        self.work_in.suggest(is_default=self._offer.worktree)
        self._offer_sandboxes(self._offer.sandbox if template.sandbox is None else template.sandbox)

    def _offer_sandboxes(self, wanted: str) -> None:
        self.sandbox.offer(self._mode, self._offer.confines, wanted)
        self.more.is_open = self.more.is_open or bool(self.sandbox.tier)  # so that the user sees what it would get
        self._show_preview()
        self._show_default_name()
        self._show_conversations()

    def _show_preview(self) -> None:
        self._fit()
        self._preview_folder = self.folder.value
        self.workers.cancel_group(self, "preview")
        if self.sandbox.say():
            self._start(self._load_preview, "preview")

    async def _load_preview(self, gateway: Gateway) -> None:
        try:
            preview = await gateway.preview_sandbox(self.agent.value, self._mode, self.folder.value, self.sandbox.tier)
        except KasmonError as error:
            self.sandbox.show_preview(None, what_failed(error))
        else:
            self.sandbox.show_preview(preview)
        self.submit_if_confirmed()

    def _refresh_preview(self) -> None:
        """Load it again if the folder changed: the sandbox gets that folder, which may have its own config."""
        if self.folder.value != self._preview_folder and not self.machine.value.strip():
            self._show_preview()

    def _fit(self) -> None:
        is_interpreter, is_open = self._mode is Mode.INTERPRETER, self.more.is_open
        self.sandbox.display = is_open and self.sandbox.is_offered
        self.hosts_field.display = is_open and is_interpreter
        self.amount_field.display = is_open and self._has_size
        self.machine_field.display = is_open
        self.conversation.display = is_open and self._offers_conversations
        self.account_field.display = self._offers_accounts
        self.work_in.display = self.work_in.is_offered and not is_interpreter and not self.machine.value.strip()
        sandbox = [f"sandbox: {self.sandbox.tier or 'none'}"] if self.sandbox.is_offered else []
        machine = clean_line(self.machine.value.strip()) or "local"
        machine += " (its kasmon)" if machine in self._registered else "" if machine == "local" else " (ssh)"
        earlier = ["earlier conversation"] if self.conversation.is_earlier and self._offers_conversations else []
        self.more.summarize(", ".join([*earlier, *sandbox, f"machine: {machine}"]))

    @property
    def _offers_accounts(self) -> bool:
        """Whether an account can be chosen: the log-ins of another machine are not known here."""
        is_here = not self.machine.value.strip()
        return bool(self._offer.accounts) and is_here and self._mode is not Mode.INTERPRETER

    @property
    def _offer(self) -> ProfileOffer:
        return next((offer for offer in self.agent.offers or () if offer.name == self.agent.value), NO_OFFER)

    @property
    def _mode(self) -> Mode | None:
        modes = self._offer.modes
        return modes[self.mode.chosen] if modes else None

    def submit(self) -> None:
        name = self.name_box.value.strip()
        if name in self.taken:
            self._complain_at("name", f"The name {clean_line(name)} is already in use.", "Choose another name.")
        elif not self.agent.is_loaded:
            self.wait_for("the installed agents are known")
        elif self.agent.can_start:
            self._create(name or self._default_name())

    def _create(self, name: str) -> None:
        machine = self.machine.value.strip()
        is_registered = machine in self._registered
        self._refresh_preview()
        sandbox = self.sandbox.tier if self.sandbox.is_open else None
        if self.sandbox.why_not and not machine:
            self._complain_at("sandbox-choice", self.sandbox.why_not.split("\n")[0], "Choose another sandbox.")
            return
        if sandbox and self.sandbox.is_asked and not machine:
            self.wait_for("its sandbox access is known")
            return
        agent, folder, mode = self.agent.value, self.folder.value, self._mode
        resume = self._requested_conversation()
        if resume is None or (location := self._requested_location(resume)) is None:
            return
        workdir = location.workdir
        if mode is Mode.INTERPRETER:
            if machine:
                self._complain_at(
                    "machine", "Interpreter sandboxes run on the local machine only.", "Leave the field empty."
                )
                return
            workdir = "" if folder == self.workdir else workdir  # the machine's own, unless the user typed another
        elif machine:
            workdir = "" if folder == self.workdir else folder  # this machine's folder does not exist there
            if not is_registered:
                if (address := self._ssh_address(machine)) is None:
                    return
                agent, mode = address, Mode.TMUX
        prompt, template = self.prompt_box.text.strip(), self.template.chosen
        fields = self._values_for(prompt) if self._template_prompt else None
        if self._template_prompt and fields is None:
            return
        size, hosts = self._requested_size(), self._requested_hosts()
        account = self._requested_account()

        async def create(operations: "Operations", agrees: bool = False) -> None:
            if mode is Mode.INTERPRETER:
                from kasmon.supervisor.sandboxes.create import NewSandbox  # only where one is created

                tier = cast("Tier", sandbox) if sandbox else None
                new_sandbox = NewSandbox(name=name, tier=tier, size=size, folder=workdir, hosts=hosts)
                await operations.create_interpreters(new_sandbox, prompt)
            else:
                from kasmon.supervisor.sessions.create import NewSession  # loaded with the operations

                new = NewSession(
                    name=name,
                    agent=agent,
                    mode=mode,
                    workdir=workdir,
                    prompt=prompt,
                    resume=resume,
                    account=account,
                    sandbox=sandbox,
                    agrees=agrees,
                    worktree=location.worktree,
                    base=location.base,
                    tags=() if template is None else template.tags,
                )
                start = partial(operations.start_there, machine) if is_registered else operations.create_session
                await start(new, fields=fields)
            self.dashboard.main_view.table.await_name(name)

        confined = self.sandbox.confined
        if sandbox and confined is not None and not confined.is_agreed:
            self._ask_agreement(agent, confined, partial(create, agrees=True))
        else:
            self.run_operation(create)

    def _requested_location(self, resume: str) -> SessionLocation | None:
        """Where the session works; None, with the reason shown, if that is unknown.

        *resume*: the conversation that it resumes, in the folder itself; empty for a new one.
        """
        folder = self.folder.value
        location = SessionLocation(str(expanded(folder)) if folder else "")
        is_asked = self.work_in.is_offered and not self.machine.value.strip() and self._mode is not Mode.INTERPRETER
        if resume or not is_asked:
            return location
        if self.work_in.folder != folder:
            self.wait_for("the worktrees of its folder are known")
            self._start(self._load_worktrees, "worktrees")
            return None
        if (chosen := self.work_in.location(location.workdir)) is None:
            self._complain_at(
                "existing-worktree",
                f"No other worktree is on the branch {clean_line(self.work_in.existing.value.strip())!r}.",
                "Type the branch of one.",
            )
        return chosen

    def _requested_conversation(self) -> str | None:
        """The id of the earlier conversation, empty for a new one; None, with the reason shown, if none is listed."""
        if not (self.conversation.is_earlier and self._offers_conversations):
            return ""
        self._show_conversations()
        if self.conversation.loaded is None:
            self._complain_at("conversation", "The conversations are not listed yet.", "Choose one once they are.")
            return None
        if self.conversation.chosen is None:
            self._complain_at("conversation", "There is no earlier conversation to resume.", "Choose a new one.")
            return None
        return self.conversation.chosen.id

    def _values_for(self, prompt: str) -> dict[str, str] | None:
        """Return the text of each field in a template's *prompt*; None, with the problem shown, if one has none."""
        try:
            return self.template.values_for(prompt)
        except UsageError as error:
            self.complain(error.message, error.hint)
            self.set_focus(self.template.first_empty or self.prompt_box)
            return None

    def _ssh_address(self, machine: str) -> str | None:
        """The chosen agent on *machine*; None, with the problem shown, if that is no ssh destination."""
        agent = f"{self.agent.value}@{machine}"
        try:
            split(agent)
        except UsageError as error:
            self._complain_at("machine", error.message, error.hint)
            return None
        return agent

    def _requested_account(self) -> str:
        """The account, of the config of this machine or of the other one's; empty for the agent's own log-in."""
        if self._offers_accounts:
            return self._accounts[self.account.chosen]
        return "" if self.template.chosen is None else self.template.chosen.account

    def _requested_size(self) -> Literal["default", "build", "max"] | None:
        """None if it is the config's, or the user chose none."""
        is_usual = not self._has_size or self.amount.value == self.sandbox.may_be.size
        return None if is_usual else cast("Literal['default', 'build', 'max']", self.amount.value)

    @property
    def _has_size(self) -> bool:
        has_size = self.sandbox.tier != "e2b"  # there its template decides
        return self._mode is Mode.INTERPRETER and has_size and len(self.amount.options) > 1

    def _requested_hosts(self) -> tuple[str, ...] | None:
        """None if they are the config's."""
        hosts = tuple(host for host in re.split(r"[\s,]+", self.hosts.value) if host)
        return None if hosts == self.sandbox.may_be.hosts else hosts

    def _ask_agreement(self, agent: str, confined: SandboxPreview, create: Operation) -> None:
        """Have the user agree once: what a sandbox gets leaves kasmon's control."""
        lines, agree = (f"{agent} starts in a sandbox with access to:", *confined.lines), "agree and start"
        confirm_action(self.dashboard, "Sandbox access", lines, agree, lambda: self.run_operation(create))

    def _complain_at(self, field: str, problem: str, hint: str) -> None:
        self.complain(problem, hint)
        if field in ("sandbox-choice", "machine", "conversation") and not self.more.is_open:
            self.more.is_open = True
            self._fit()
        self.set_focus(self.query_one(f"#{field}"))


def _is_shown(field: Widget) -> bool:
    return all(each.display for each in field.ancestors_with_self if isinstance(each, Widget))
