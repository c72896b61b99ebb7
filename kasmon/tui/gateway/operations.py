"""What the user can have done; imported by the first operation, as no frame needs them."""

import asyncio
import contextlib
import os
import shutil
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from kasmon import system
from kasmon.config import Config
from kasmon.config.edit import put
from kasmon.errors import KasmonError, RefusedError, UnavailableError
from kasmon.model.commands import (
    Answer,
    Checkpoint,
    Configure,
    Mode,
    Prompt,
    Receipt,
    Requeue,
    Run,
    SandboxCommand,
    TerminalLogIn,
)
from kasmon.model.events import ReviewComment
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import duration
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PlanAction
from kasmon.model.review.hunks import ShownHunk
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.model.transcript.markdown.links import is_link
from kasmon.paths import Paths, write_private
from kasmon.sanitize import clean_line
from kasmon.supervisor.limits.budgets import find_warnings
from kasmon.supervisor.notifications.alerts import Alert
from kasmon.supervisor.prompts.images import find_mentioned, store_picture
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.folder_config import for_session
from kasmon.tmux.user_client import COPY_STDIN
from kasmon.tui.gateway.notification_delivery import NotificationDelivery
from kasmon.tui.theme.look import RECEIPT_WORDS

if TYPE_CHECKING:
    from kasmon.supervisor.finish.finish_plan import PlannedFinish
    from kasmon.supervisor.finish.merge_execution import DecideConflict
    from kasmon.supervisor.finish.merge_plan import MergePlan
    from kasmon.supervisor.notifications.notifier import TargetStatus
    from kasmon.supervisor.sandboxes.create import NewSandbox

COPY_S: Final = 2.0
"""How long tmux may take to accept a text, in seconds."""
OPEN_S: Final = 3.0
"""How long to wait for the opener to fail, in seconds; some run for as long as the browser does."""


class Operations:
    """What the user can have done, over the folders of one kasmon; *config* and *fleet* return the current ones.

    A returned text is a sentence for the user, empty if the list shows the outcome. Each raises `KasmonError` or
    `OSError` if it was not done; the message is for the user.
    """

    def __init__(self, paths: Paths, config: Callable[[], Config], fleet: Callable[[], Fleet]) -> None:
        self._paths = paths
        self._config = config
        self._fleet = fleet
        self._delivery = NotificationDelivery()
        self._push_problems: dict[str, str] = {}
        """Target -> why nothing could be pushed to it, as last shown."""

    async def create_session(self, new: NewSession, /, *, fields: Mapping[str, str] | None = None) -> None:
        """Start a session; an empty `workdir` is the dashboard's own folder.

        *fields*: the values of the fields in its prompt; None if the prompt is not a template's.
        """
        config = await self._config_in(new.workdir, new.agent)
        await session_operations.create(self._paths, config, _with_fields(config, new, fields))

    async def start_there(self, machine: str, new: NewSession, /, *, fields: Mapping[str, str] | None = None) -> None:
        """As `create_session`, on a registered machine; an empty `workdir` is the home folder there."""
        from kasmon.supervisor.machines.delegation import start_there  # rarely needed, as the next two

        new = _with_fields(self._config(), new, fields)
        await start_there(self._paths, machine, new)

    async def add_machine(self, name: str, destination: str, /, *, install: bool = False) -> str:
        """Register the machine at the ssh *destination*, if its kasmon can be reached and speaks this protocol.

        *install*: first install this kasmon there.
        """
        from kasmon.bus.ssh import check_machine
        from kasmon.supervisor.machines import registration

        ssh = self._config().remote.ssh
        if install:
            from kasmon.supervisor.machines import installation

            await asyncio.to_thread(installation.install, destination, ssh)
        machine = await asyncio.to_thread(registration.describe, self._paths, name, destination, ssh)
        await check_machine(machine, ssh)
        await asyncio.to_thread(registration.register, self._paths, machine)
        return f"{name} is registered; its sessions appear in the list."

    async def remove_machine(self, name: str, /) -> str:
        """Remove the registration of a machine, and the copies of its sessions here."""
        from kasmon.supervisor.machines import registration

        await asyncio.to_thread(registration.remove, self._paths, name)
        return f"{name} is removed; its sessions continue there."

    async def create_interpreters(self, new: "NewSandbox", prompt: str = "", /) -> None:
        """Create an interpreter sandbox; bash runs *prompt*, if there is one."""
        from kasmon.supervisor.fleet.snapshot import read_fleet  # these three are rarely needed
        from kasmon.supervisor.sandboxes import sandbox_operations, use

        made = await sandbox_operations.create(self._paths, self._config(), new)
        session = (await asyncio.to_thread(read_fleet, self._paths)).get(made)
        if prompt and session is not None:
            await use.run(self._paths, session, "bash", prompt)

    async def adopt_pane(self, pane: str, name: str, /) -> None:
        """Watch this pane of the user's own tmux (`%5`) as a session with this name."""
        from kasmon.supervisor.sessions.adoption.panes import adopt  # rarely needed

        await adopt(self._paths, pane, name)

    async def begin_log_in(self, session: SessionId, shown: TerminalLogIn, /) -> str:
        """Start the log-in *shown* that the agent offers, in a terminal, and return the name of that session.

        The agent restarts once the log-in has ended well.
        """
        from kasmon.supervisor.limits.log_in import begin_log_in  # rarely needed

        known = self._session(session)
        return await begin_log_in(self._paths, await self._config_in(known.config_folder, ""), known, shown)

    async def adopt_background(self, background: str, /) -> str:
        """Show the background session of Claude Code with this id as a session, and return that session's name."""
        from kasmon.supervisor.sessions.adoption.background import adopt_background  # rarely needed

        return (await adopt_background(self._paths, self._config(), background))[1]

    async def restart(self, session: SessionId, /) -> str:
        known, began = self._session(session), time.monotonic()
        await session_operations.restart(self._paths, known)
        return _describe_resumed(known, time.monotonic() - began) if known.state is SessionState.HIBERNATED else ""

    async def hibernate(self, session: SessionId, /) -> str:
        """End the idle agent until its next use, or pause its sandbox."""
        from kasmon.supervisor.hibernation.hibernate import hibernate  # rarely needed

        known = self._session(session)
        done = await hibernate(self._paths, known)
        return f"{known.label}: {done}." if done else ""

    async def hibernate_all(self, sessions: Sequence[SessionId], /) -> str:
        """Hibernate these sessions, one after the other, and describe what became of each."""
        messages: list[str] = []
        for session in sessions:
            try:
                messages.append(await self.hibernate(session))
            except KasmonError as error:
                messages.append(error.message)
        return "\n".join(filter(None, messages))

    async def move(
        self, session: SessionId, to: Mode, /, *, account: str | None = None, changes_permissions: bool = False
    ) -> None:
        """Continue the same conversation in mode *to*, or in its own mode with *account*.

        Args:
            account: an account of the config, empty for the agent's own log-in; None: the same.
            changes_permissions: whether the user agrees that its permission mode cannot be kept.
        """
        from kasmon.supervisor.sessions.move import move  # rarely needed

        known = self._session(session)
        config = await self._config_in(known.config_folder, known.agent)
        await move(self._paths, config, known, to, account, changes_permissions=changes_permissions)

    async def rename(self, session: SessionId, name: str, /) -> None:
        await list_entry.rename(self._paths, self._session(session), name)

    async def set_tags(self, session: SessionId, before: Sequence[str], tags: Sequence[str], /) -> None:
        """Give the session *tags*; of its tags, only those in *before* that are not among them are removed."""
        from kasmon.supervisor.sessions.names import check_tags

        wanted = check_tags(tags)
        added, removed = (set(wanted) - set(before), set(before) - set(wanted))
        await list_entry.tag(self._paths, self._session(session), added, removed)

    async def mark_viewed(self, session: SessionId, /) -> None:
        known = self._session(session)
        try:
            await list_entry.mark_viewed(self._paths, known)
        except RefusedError:
            if not known.via:  # who may only see the sessions of a machine leaves no mark there
                raise

    async def remove(self, session: SessionId, /, *, deletes_conversation: bool = False) -> str:
        """Remove an ended session from the list; its log stays on disk.

        *deletes_conversation*: its agent deletes its own conversation first.
        """
        known = self._session(session)
        if known.mode is not Mode.INTERPRETER:
            kept = await list_entry.forget(self._paths, known, deletes_conversation=deletes_conversation)
        else:
            from kasmon.supervisor.sandboxes import sandbox_operations

            kept = await sandbox_operations.remove(self._paths, known)
        return list_entry.copy_stays(kept) if kept else ""

    async def export(
        self, session: SessionId, /, format_: Literal["markdown", "html"] = "markdown", turn: int = 0
    ) -> str:
        """Write all of the session, or one *turn*, to a new file in the dashboard's own folder."""
        from kasmon.supervisor.sessions.export import as_html, as_markdown, write_beside  # rarely needed

        known, write_as = self._session(session), as_html if format_ == "html" else as_markdown
        text = await asyncio.to_thread(write_as, self._paths, known, turn)
        return f"Exported {known.name} to {await asyncio.to_thread(write_beside, Path.cwd(), known, text, format_)}."

    async def send_prompt(self, session: SessionId, prompt: Prompt, /) -> str:
        """Send *prompt* with the pictures that it mentions as `@picture.png`."""
        known, took_s = self._session(session), list[float]()
        images = await asyncio.to_thread(find_mentioned, known, prompt.text)
        receipt = await session_operations.send(
            self._paths, known, prompt.text, prompt.when, anyway=prompt.anyway, images=images, on_resumed=took_s.append
        )
        warnings = await asyncio.to_thread(find_warnings, self._paths, known)
        resumed = f"{_describe_resumed(known, took_s[0])} " if took_s else ""
        return " · ".join([resumed + describe_receipt(known, receipt), *warnings])

    async def store_picture(self, picture: bytes, /) -> str:
        """Write a picture to a file that only the user can read, and return its path."""
        return str(await asyncio.to_thread(store_picture, self._paths, picture))

    async def fork_session(self, session: SessionId, prompt: str, later: int, text: str, /) -> str:
        """Start a session that continues this one with *text* in the place of *prompt*, before *later* equal ones."""
        from kasmon.supervisor.prompts.fork import fork  # rarely needed

        known = self._session(session)
        config = await self._config_in(known.config_folder, known.agent)
        _, name = await fork(self._paths, config, known, prompt, later, text)
        return f"{name} continues {clean_line(known.label)} from that prompt. Files were not rewound."

    async def change_queue(self, session: SessionId, change: Requeue, /) -> None:
        """Move, edit or remove a queued prompt."""
        await session_operations.requeue(self._paths, self._session(session), change)

    async def answer(self, session: SessionId, answer: Answer, /) -> None:
        await session_operations.execute(self._paths, self._session(session), answer)

    async def interrupt(self, session: SessionId, /) -> str:
        """Interrupt the turn; the text says what happens to the queue, if there is one."""
        known = self._session(session)
        message = await session_operations.interrupt(self._paths, known)
        return f"{clean_line(known.label)}: {message}." if ";" in message else ""

    async def continue_stopped(self, session: SessionId, /) -> None:
        await session_operations.continue_stopped(self._paths, self._session(session))

    async def stop(self, session: SessionId, /, *, with_children: bool = False) -> None:
        known = self._session(session)
        await session_operations.stop(self._paths, known)
        if with_children:
            await session_operations.stop_children(self._paths, known)

    async def configure(self, session: SessionId, changes: Configure, /) -> None:
        await session_operations.execute(self._paths, self._session(session), changes)

    async def write_comment(self, session: SessionId, comment: ReviewComment, /) -> None:
        """Log a comment on lines that the session changed; if it has an id, edit the text of that comment."""
        from kasmon.supervisor.review import comments  # these four are rarely needed

        known = self._session(session)
        if comment.id:
            await comments.edit_comment(self._paths, known, comment.id, comment.text)
            return
        built = await asyncio.to_thread(
            comments.build_comment,
            known,
            comment.file,
            comment.line,
            comment.lines,
            comment.text,
            side=comment.side,
            hunk=comment.hunk,
        )
        await comments.write_comment(self._paths, known, built)

    async def remove_comment(self, session: SessionId, comment: str, /) -> None:
        from kasmon.supervisor.review import comments

        await comments.remove_comment(self._paths, self._session(session), comment)

    async def mark_comment(self, session: SessionId, comment: str, /, *, is_resolved: bool) -> None:
        """Mark a comment as resolved, or reopen it."""
        from kasmon.supervisor.review import comments

        await comments.mark_comment(self._paths, self._session(session), comment, is_resolved=is_resolved)

    async def send_comments(self, session: SessionId, /) -> str:
        """Send the open comments to the agent as one prompt."""
        from kasmon.supervisor.review import comments

        known = self._session(session)
        receipt, count = await comments.send_comments(self._paths, known)
        return f"{count} {'comment' if count == 1 else 'comments'} to {describe_receipt(known, receipt)}"

    async def revert_hunk(self, session: SessionId, hunk: ShownHunk, /) -> str:
        """Take the changes of a hunk back in the worktree, if its file is still as it was shown."""
        from kasmon.supervisor.review import hunks  # rarely needed, as in the next two

        return await asyncio.to_thread(hunks.revert_hunk, self._paths, self._session(session), hunk)

    async def stage_hunk(self, session: SessionId, hunk: ShownHunk, /) -> str:
        """Add the unstaged changes of a hunk to the index, if its file is still as it was shown."""
        from kasmon.supervisor.review import hunks

        return await asyncio.to_thread(hunks.stage_hunk, self._paths, self._session(session), hunk)

    async def undo_hunk(self, session: SessionId, /) -> str:
        from kasmon.supervisor.review import hunks

        return await asyncio.to_thread(hunks.undo_last_hunk, self._paths, self._session(session))

    async def change_sandbox(self, session: SessionId, command: SandboxCommand, /) -> str:
        """Execute *command* in the session's sandbox; the output of a `Run` appears in the transcript."""
        from kasmon.supervisor.sandboxes import use

        known = self._session(session)
        if isinstance(command, Run):
            await use.run(self._paths, known, command.interpreter, command.code)
            return ""
        checkpoint = await use.execute(self._paths, known, command)
        if isinstance(command, Checkpoint):
            text = f"checkpoint {checkpoint} created" if checkpoint else "no checkpoint could be created"
            return f"{known.name}: {text}"
        return f"{known.name}: {checkpoint}" if checkpoint else ""

    async def fork_sandbox(self, session: SessionId, name: str, checkpoint: str = "", /) -> str:
        """Create a session called *name* from the state of this one's sandbox, now or at *checkpoint*."""
        from kasmon.model.sandbox.snapshot import describe_origin
        from kasmon.supervisor.sandboxes import sandbox_operations

        known = self._session(session)
        made = await sandbox_operations.fork(self._paths, known, name, checkpoint)
        text = f"Created {name} from {known.name}, {describe_origin(made.origin)}."
        return f"{text} {known.name} lost: {made.lost}" if made.lost else text

    async def replay_sandbox(self, session: SessionId, name: str, checkpoint: str = "", /) -> str:
        """Create a session called *name*, and run in it what this one ran until *checkpoint* (empty: until now)."""
        from kasmon.supervisor.sandboxes import sandbox_operations

        return await sandbox_operations.replay_session(self._paths, self._session(session), name, checkpoint)

    async def decide_on_plan(self, plan: str, action: PlanAction, task: str = "", agent: str = "", /) -> None:
        """Apply a decision to a running plan; *agent* takes the task over, for `replace`."""
        from kasmon.supervisor.plans import decisions  # imports all plan modules

        config, fleet = self._config(), self._fleet()
        await asyncio.to_thread(decisions.record_decision, self._paths, config, fleet, plan, action, task, agent)

    async def apply_plan_edit(self, plan: str, digest: str, /) -> None:
        """Apply the edited file of this plan, as it was shown."""
        from kasmon.supervisor.plans import decisions

        await asyncio.to_thread(decisions.apply_edit, self._paths, self._config(), plan, digest)

    async def finish(self, session: SessionId, plan: "PlannedFinish", report: Callable[[str], None], /) -> str:
        """Do with the session's branch what *plan* says; *report* gets a sentence after each step.

        Raises:
            StaleRequestError: if a commit or a file changed since the plan was made; nothing is done then.
        """
        from kasmon.supervisor.finish.finish import finish  # rarely needed, as the other

        known, loop = self._session(session), asyncio.get_running_loop()

        def pass_on(text: str) -> None:
            loop.call_soon_threadsafe(report, text)

        result = await finish(self._paths, known, plan, pass_on)
        await asyncio.sleep(0)  # for the last report
        if not result.conflicts:
            return ""
        end = "they are sent to the agent" if result.receipt else f"resolve them in {plan.tree.path!r}"
        return f"Conflicts in {', '.join(map(repr, result.conflicts))}: {end}."

    async def merge_one_by_one(
        self, plan: "MergePlan", report: Callable[[str], None], decide: "DecideConflict", /
    ) -> str:
        """Merge the branches of *plan*; *report* gets a sentence after each, and *decide* is asked at a conflict.

        Raises:
            StaleRequestError: if a commit or a file changed since the plan was made; nothing is done then.
        """
        from kasmon.supervisor.finish.merge_execution import merge_one_by_one  # rarely needed
        from kasmon.supervisor.finish.merge_plan import outcome_lines

        loop = asyncio.get_running_loop()
        sessions = [self._session(step.session) for step in plan.steps]

        def pass_on(text: str) -> None:
            loop.call_soon_threadsafe(report, text)

        outcome = await merge_one_by_one(self._paths, sessions, plan, pass_on, decide)
        await asyncio.sleep(0)  # for the last report
        return "\n".join(outcome_lines(outcome, len(plan.steps)))

    async def send_feedback(self, session: SessionId, /) -> str:
        """Send the agent the failed checks of its pull request and the comments of reviewers."""
        from kasmon.supervisor.finish.feedback import send_feedback  # rarely needed

        known = self._session(session)
        receipt = await send_feedback(self._paths, known)
        return f"{known.name}: {RECEIPT_WORDS[receipt.state]}: {receipt.text}"

    async def save_theme(self, name: str, key: str, /) -> None:
        """Write this theme's name into the config, as the value of *key*: `ui.theme` or `ui.light_theme`."""
        await asyncio.to_thread(put, self._paths, key, name)

    async def save_split(self, split: msgspec.Struct, /) -> None:
        """Store how the window is split, a `protocol.Split`, for the next start."""
        await asyncio.to_thread(self._store, self._paths.split, split)

    async def save_layout(self, layout: msgspec.Struct, /) -> None:
        """Store how the list is arranged, a `ListLayout`, for the next start."""
        await asyncio.to_thread(self._store, self._paths.list_layout, layout)

    def _store(self, path: Path, value: msgspec.Struct) -> None:
        self._paths.make()
        write_private(path, msgspec.json.encode(value))

    async def copy_text(self, text: str, /) -> None:
        """Copy *text* to the tmux that the dashboard itself runs in, if any, and through it to the clipboard.

        By default tmux ignores clipboard sequences of a program inside it, but not its own command line.
        """
        if not os.environ.get("TMUX"):
            return
        with contextlib.suppress(OSError, TimeoutError):
            tmux = await asyncio.create_subprocess_exec(*COPY_STDIN, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
            try:
                async with asyncio.timeout(COPY_S):
                    await tmux.communicate(text.encode("utf-8", "replace"))
            finally:
                if tmux.returncode is None:
                    tmux.kill()

    async def open_link(self, address: str, /) -> None:
        """Open this http or https address in the user's browser; the user has seen all of it."""
        if not is_link(address):
            raise RefusedError("only http and https addresses are opened.")
        opener = next((path for name in system.HERE.openers if (path := shutil.which(name))), None)
        if opener is None:
            raise UnavailableError(
                f"cannot open a browser: {system.HERE.openers[0]!r} is not on PATH.", hint="Copy the address instead."
            )
        running = await asyncio.create_subprocess_exec(
            opener, address, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )
        try:
            async with asyncio.timeout(OPEN_S):
                code = await asyncio.shield(running.wait())
        except TimeoutError:
            return
        if code:
            raise UnavailableError(
                f"{system.HERE.openers[0]} could not open the address.", hint="Copy the address instead."
            )

    async def send_alert(self, alert: Alert, /) -> None:
        """Notify the user outside the terminal: on the desktop, and by the config's command."""
        await self._delivery.call(alert, self._config().notify)

    async def maintain_notifier(self, quiet_s: float, /) -> None:
        """Record that the last key was pressed *quiet_s* seconds ago, and have the process that pushes run.

        It is started while a session runs: otherwise it would end again after a minute.

        Raises:
            UnavailableError: if that process cannot be started, or could not push; each reason once.
        """

        def maintain() -> dict[str, "TargetStatus"]:
            from kasmon.supervisor.notifications import notifier, presence  # most configs have no targets

            presence.note_key(self._paths, time.time() - quiet_s)
            if any(session.state in ALIVE for session in self._fleet().sessions):
                notifier.start_notifier(self._paths, self._config())
                if self._config().watch:
                    from kasmon.supervisor.watchers.feeder import start_feeder

                    start_feeder(self._paths)
            return notifier.read_status(self._paths).targets

        targets = await asyncio.to_thread(maintain)
        for name, status in targets.items():
            problem = f"cannot push to {name!r}: {status.why}." if status.why else ""
            if self._push_problems.get(name, "") != problem:
                self._push_problems[name] = problem
                if problem and name in self._config().notify.targets:
                    raise UnavailableError(problem, hint=f"`kasmon notify test {name}` tries it again.")

    async def _config_in(self, folder: str, agent: str) -> Config:
        return (await asyncio.to_thread(for_session, self._paths, self._config(), folder, agent)).config

    def _session(self, session: SessionId) -> Session:
        return self._fleet().require(session)


def _with_fields(config: Config, new: NewSession, fields: Mapping[str, str] | None) -> NewSession:
    if fields is None:
        return new
    from kasmon.supervisor.sessions.template import with_prompt  # rarely needed

    return with_prompt(config, new, new.prompt, fields)


def _describe_resumed(session: Session, took_s: float) -> str:
    return f"{session.label} resumed in {duration(took_s)}."


def describe_receipt(session: Session, receipt: Receipt) -> str:
    """Return how far a prompt for *session* got, in a few words."""
    reason = f" ({receipt.reason})" if receipt.reason else ""
    return f"{session.label}: {RECEIPT_WORDS[receipt.state]}{reason}"
