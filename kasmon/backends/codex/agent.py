"""One running codex: its messages become events, commands become calls of its protocol."""

import asyncio
import contextlib
import logging
import time
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Final

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.backends.base import AgentOutput
from kasmon.backends.codex import program_path, thread_start
from kasmon.backends.codex.cli_flags import has_permissions
from kasmon.backends.codex.request_registry import CodexAnswerOutcome
from kasmon.backends.codex.settings import change, planned
from kasmon.backends.codex.shared_server import SharedServer
from kasmon.backends.codex.translator import CodexTranslator
from kasmon.backends.codex.transport import CallRefusedError, CodexMessage, CodexTransport, UnreadableLine
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.json_access import Table, as_json, rows, text
from kasmon.backends.common.slash_commands import build_announcement
from kasmon.backends.common.structured_agent import StructuredAgent
from kasmon.errors import KasmonError, LaunchError, SessionEndedError, UnfitAgentError
from kasmon.model.answer import must_fit
from kasmon.model.commands import Answer, Configure, Launch, Prompt
from kasmon.model.events import CommandsAnnounced, NoticeRaised, SettingsChanged
from kasmon.model.permission import Decision, Request
from kasmon.sanitize import redact

NOT_FOUND: Final = "kasmon does not support this method"
EXPLAIN_S: Final = 3.0
"""How long codex may take to accept the reason of a denial before it is denied without, in seconds."""
GO: Final = "Implement the plan."
"""What codex's own screen sends when the user approves a plan."""
BACKTRACE: Final = "Stack backtrace:"
NO_SERVER: Final = ("unrecognized subcommand", "unexpected argument", "No such command")
"""What a program prints that has no app-server."""

COMPACT: Final = "compact"
REVIEW: Final = "review"
BUILT_IN: Final = (
    (COMPACT, "Summarize the conversation to free context", ""),
    (REVIEW, "Review the uncommitted changes, or as instructed", "[instructions]"),
)
"""The commands of codex's own screen that its protocol has, with what they do and their arguments."""

log = logging.getLogger(__name__)


class CodexCommands:
    """The commands of one codex; its skills are known after `read_skills`."""

    def __init__(self) -> None:
        self._skills: dict[str, str] = {}

    async def read_skills(self, transport: CodexTransport, at: float) -> CommandsAnnounced:
        """Read the skills of codex's folder, and return all commands; an older codex has no skills."""
        try:
            listed = rows(await transport.call("skills/list", {}), "data")
        except CallRefusedError:
            listed = []
        skills = [skill for entry in listed for skill in rows(entry, "skills") if skill.get("enabled") is True]
        self._skills = {text(skill, "name"): text(skill, "path") for skill in skills}
        described = [
            (text(skill, "name"), text(skill, "shortDescription") or text(skill, "description"), "") for skill in skills
        ]
        return build_announcement([*BUILT_IN, *described], at)

    def find(self, prompt: str) -> tuple[str, Table] | None:
        """Return the method and the parameters that *prompt* means as a command; None for any other prompt."""
        name, _, rest = prompt.strip().removeprefix("/").partition(" ")
        if not prompt.strip().startswith("/"):
            return None
        if name == COMPACT:
            return "thread/compact/start", {}
        if name == REVIEW:
            target: Table = {"type": "custom", "instructions": rest.strip()}
            return "review/start", {"target": target if rest.strip() else {"type": "uncommittedChanges"}}
        return None

    def inputs(self, prompt: str) -> list[Table]:
        """Return the inputs of a turn besides the text *prompt*: the skill that it names."""
        name = prompt.strip().removeprefix("/").partition(" ")[0] if prompt.strip().startswith("/") else ""
        return [{"type": "skill", "name": name, "path": self._skills[name]}] if name in self._skills else []


class CodexAgent(StructuredAgent):
    """One codex, whose thread gets the settings *thread*; the program that runs is *path*."""

    def __init__(
        self,
        launch: Launch,
        child: ChildProcess,
        path: str,
        thread: Table,
        secrets: tuple[str, ...],
        server: SharedServer | None = None,
    ) -> None:
        """*server*: *child* as a server with a socket; None if it is talked to over its stdin."""
        super().__init__(launch, child)
        self._path, self._thread, self._secrets, self._server = path, thread, secrets, server
        self._transport = CodexTransport(child if server is None else server.channel, launch.session, secrets)
        self._translator = CodexTranslator(launch, is_shared=server is not None)
        self._started_at = time.time()
        self._commands = CodexCommands()
        self._models_task: asyncio.Task[None] | None = None
        self._life = asyncio.create_task(self._read_messages())

    async def begin(self) -> None:
        version = await thread_start.introduce(self._transport)
        opened = await thread_start.open_thread(self._transport, self._launch, self._thread, version)
        now = time.time()
        self._emit(self._translator.begin(opened.thread, opened.response, now))
        if self._launch.permission_mode:  # plan mode has no argument
            await self._configure(Configure(permission_mode=self._launch.permission_mode))
        if opened.notice:
            self._emit([NoticeRaised(at=now, text=opened.notice, level="warning")])
        pid = await asyncio.to_thread(program_path.speaker, self._child.pid)
        model = text(opened.response, "model")
        launch = self._launch
        can_join = self._server is not None and not has_permissions(launch.argv[1:], launch.permission_mode)
        abilities = ("attaches",) if can_join else ()
        self._start_events(self._started_at, pid, opened.thread, model, opened.proof, abilities=abilities)
        self._models_task = asyncio.create_task(self._list_offers())

    def explain(self, error: Exception, limit_s: float) -> LaunchError:
        if isinstance(error, TimeoutError):
            why, how = f"did not open a conversation within {limit_s:g} s", ""
        elif isinstance(error, SessionEndedError):
            code = self._child.exit_code
            ended = self._child.signal if code is None else f"exit code {code}"
            why, how = "ended before it had opened a conversation", f" ({ended})" if ended else ""
        else:
            raise error
        output = self._child.last_words.partition(BACKTRACE)[0]
        output_line = "; ".join(line.strip() for line in output.splitlines() if line.strip()).rstrip(".")
        what, started = (
            f"codex {why}{how}{f': {output_line}' if output_line else ''}.",
            f"The program was {self._path!r}.",
        )
        if not output_line or any(sign in output_line for sign in NO_SERVER):
            return UnfitAgentError(what, hint=f"kasmon requires a codex with `codex app-server`. {started}")
        return LaunchError(what, hint=f"Check the profile's flags and config. {started}")

    # Messages of codex

    async def _read_messages(self) -> None:
        try:
            async for message in self._transport.messages():
                self._emit(await self._translate(message))
                await self._event_queue.wait_for_space()
            await self._await_end()
            if self._server is not None:
                await self._server.aclose()
        finally:
            self._report_end(self._translator.ended(time.time()))

    async def _translate(self, message: CodexMessage | UnreadableLine) -> list[AgentOutput]:
        now = time.time()
        if isinstance(message, UnreadableLine):
            line, notice = message.raw.decode("utf-8", "replace"), "Codex printed a line that is not a message."
            return self._report_unknown("a line that is not a message", line, now, notice)
        try:
            if message.call is None:
                return self._translator.handle_notification(message.method, message.params, now)
            events_of_call = self._translator.open_call(message.call, message.method, message.params, now)
        except Exception:  # a message of unexpected shape must not end the session; it is kept and reported
            log.warning("codex's %s could not be read", message.method, exc_info=True)
            events_of_call = None
        if message.call is not None and events_of_call is None:
            await self._answer_unsupported(message)
        return (
            self._report_unknown(message.method, as_json(message.params), now)
            if events_of_call is None
            else events_of_call
        )

    async def _answer_unsupported(self, message: CodexMessage) -> None:
        """Refuse a call that kasmon cannot answer; answer one for the current time."""
        assert message.call is not None
        with contextlib.suppress(SessionEndedError):
            if message.method == "currentTime/read":  # 0.171 no longer asks
                await self._transport.answer(message.call, {"currentTimeAt": int(time.time())})
            else:
                await self._transport.refuse(message.call, NOT_FOUND)

    def _report_unknown(self, what: str, raw: str, now: float, notice: str = "") -> list[AgentOutput]:
        return [*self._translator.notices.unknown.report(what, redact(raw, self._secrets)[0], now, notice)]

    async def _list_offers(self) -> None:
        """Report the models and the slash commands that codex offers."""
        with contextlib.suppress(KasmonError):  # it ended
            self._emit([await self._commands.read_skills(self._transport, time.time())])
            if offered := await thread_start.models(self._transport):
                self._emit([SettingsChanged(at=time.time(), models=offered)])

    def _lift_limit(self, at: float) -> Iterable[AgentOutput]:
        return self._translator.lifted(at)

    async def _disconnect(self) -> None:
        await cancel_and_wait(self._models_task)
        if self._server is not None:
            await self._server.aclose()

    # Commands

    async def _prompt(self, prompt: Prompt) -> None:
        """Begin a turn, or add the prompt to the running one."""
        main = self._translator.main
        method, params = "turn/start", {"threadId": main, "input": self._inputs(prompt)}
        if (command := self._commands.find(prompt.text)) is not None:
            method, params = command[0], {"threadId": main, **command[1]}
        elif turn := self._translator.turns.get(main):
            self._translator.given.expect_in_turn(prompt)
            try:
                await self._transport.call("turn/steer", {**params, "expectedTurnId": turn})
            except CallRefusedError:
                self._translator.given.forget(prompt)
                if self._translator.turns.get(main) == turn:
                    raise
            else:
                return
        self._translator.given.expect(prompt)
        try:
            await self._transport.call(method, params)
        except BaseException:
            self._translator.given.forget(prompt)
            raise

    def _inputs(self, prompt: Prompt) -> list[Table]:
        images: list[Table] = [{"type": "localImage", "path": image.path} for image in prompt.images]
        if self._launch.sandbox is not None:  # codex cannot see the files
            addresses = (f"data:{each.media_type};base64,{b64encode(each.data).decode()}" for each in prompt.images)
            images = [{"type": "image", "url": address} for address in addresses]
        return [*images, *_input(prompt.text), *self._commands.inputs(prompt.text)]

    async def _answer(self, answer: Answer) -> None:
        """Send codex the answer to its call, once all questions of the same call have one."""
        if answer.decision is Decision.LATER:
            return
        plan = self._translator.plan
        if plan is not None and answer.request == plan.id:
            await self._approve(plan, answer)
            return
        outcome = self._translator.requests.answer(answer, time.time())
        self._emit(outcome.events)
        if outcome.call is None:
            return
        if outcome.reason:
            await self._explain_denial(outcome)
        if outcome.allowed:
            self._translator.allowed[outcome.call] = outcome.item
        await self._transport.answer(outcome.call, outcome.result)
        if outcome.interrupt:
            await self._interrupt()

    async def _interrupt(self) -> None:
        """End all turns, and the commands that codex waits for: codex would let them run."""
        commands = self._translator.tracker.foreground()
        for thread, turn in list(self._translator.turns.items()):
            with contextlib.suppress(CallRefusedError):  # it ended by itself
                await self._transport.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        for thread in sorted(set(commands.values())):
            await self._end_commands(thread, [command for command, of in commands.items() if of == thread])

    async def _end_turn(self) -> None:
        try:
            if self._translator.turns:
                await self._interrupt()
        finally:
            if self._server is not None:
                self._server.terminate()

    async def _configure(self, command: Configure) -> None:
        """Change the model or the permission mode from the next turn on."""
        await self._set(change(self._translator.settings, command.model, command.permission_mode))

    async def _set(self, changes: Table) -> None:
        if changes:
            await self._transport.call("thread/settings/update", {"threadId": self._translator.main, **changes})

    async def _explain_denial(self, outcome: CodexAnswerOutcome) -> None:
        """Send the reason of a denial as a message in the same turn: the model gets it right after the denial."""
        turn = self._translator.turns.get(outcome.thread, "")
        text = f"I declined that: {outcome.reason}"
        prompt_input = _input(text)
        self._translator.given.expect_reason(text)
        try:
            async with asyncio.timeout(EXPLAIN_S):
                await self._transport.call(
                    "turn/steer", {"threadId": outcome.thread, "expectedTurnId": turn, "input": prompt_input}
                )
        except (CallRefusedError, TimeoutError):
            self._warn("The request was denied; codex could not receive the reason.")

    async def _approve(self, plan: Request, answer: Answer) -> None:
        """Let codex implement its *plan*, or send it the reason of the denial."""
        must_fit(plan, answer)
        self._translator.plan = None
        if answer.decision is Decision.ALLOW:
            await self._set(planned(self._translator.settings))
            await self._prompt(Prompt(text=GO))
        elif answer.reason.strip():
            await self._prompt(Prompt(text=answer.reason))

    async def _end_commands(self, thread: str, commands: Sequence[str]) -> None:
        """End *commands* of *thread*. A command that had hardly begun ended with its turn; codex does not report it."""
        try:
            listed = rows(await self._transport.call("thread/backgroundTerminals/list", {"threadId": thread}), "data")
            running = {text(terminal, "itemId"): text(terminal, "processId") for terminal in listed}
            for command in commands:
                if command in running:
                    ended = {"threadId": thread, "processId": running[command]}
                    await self._transport.call("thread/backgroundTerminals/terminate", ended)
                else:
                    self._emit(self._translator.tracker.give_up(command, time.time()))
        except CallRefusedError:
            self._warn("Codex was interrupted; a command that it had started may still run.")

    def _warn(self, text: str) -> None:
        self._emit([NoticeRaised(at=time.time(), text=text, level="warning")])


def _input(text: str) -> list[Table]:
    return [{"type": "text", "text": text, "text_elements": []}]
