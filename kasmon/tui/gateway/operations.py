"""What the user can have done; imported by the first operation, as no frame needs them."""

import asyncio
import contextlib
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from kasmon.config import Config
from kasmon.config.edit import put
from kasmon.errors import RefusedError, SessionNotFoundError, UnavailableError
from kasmon.model.commands import Answer, Checkpoint, Configure, Mode, Prompt, Receipt, Requeue, Run, SandboxCommand
from kasmon.model.events import ReviewComment
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PlanAction
from kasmon.model.review.hunks import ShownHunk
from kasmon.model.sandbox.policy import Tier
from kasmon.model.session import Session
from kasmon.paths import Paths, write_private
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.folder_config import for_session
from kasmon.tmux.user_client import COPY_STDIN
from kasmon.tui.gateway.notification_delivery import NotificationDelivery
from kasmon.tui.notifications.alerts import Alert
from kasmon.tui.terminal.links import is_link
from kasmon.tui.theme.look import RECEIPT_WORDS

if TYPE_CHECKING:
    from kasmon.supervisor.finish.finish_plan import PlannedFinish
    from kasmon.supervisor.finish.merge_execution import DecideConflict
    from kasmon.supervisor.finish.merge_plan import MergePlan

COPY_S: Final = 2.0
"""How long tmux may take to accept a text, in seconds."""
OPENERS: Final = ("open",) if sys.platform == "darwin" else ("xdg-open", "wslview")
OPEN_S: Final = 3.0
"""How long to wait for the opener to fail, in seconds; some run for as long as the browser does."""


class Operations:
    """What the user can have done, over the folders of one kasmon; *config* and *fleet* return the current ones.

    A returned text is a sentence for the user, empty if the list shows the outcome. Each raises `KasmonError` or
    `OSError` if it was not done; the message is for the user.
    """

    def __init__(self, places: Paths, config: Callable[[], Config], fleet: Callable[[], Fleet]) -> None:
        self._places = places
        self._config = config
        self._fleet = fleet
        self._delivery = NotificationDelivery()

    async def create_session(
        self,
        name: str,
        agent: str,
        *,
        mode: Mode | None = None,
        workdir: str = "",
        prompt: str = "",
        sandbox: str | None = None,
        agrees: bool = False,
        worktree: bool | None = None,
        base: str = "",
    ) -> None:
        """Start a session.

        Args:
            mode: None for the agent's default.
            workdir: empty for the dashboard's own folder.
            sandbox: the tier of its sandbox; empty for none, None for the profile's.
            worktree: whether it gets a new git worktree of the repository that *workdir* is in; None for the default.
            base: what that begins at; empty for the branch that is checked out.
            agrees: whether the user has seen what the sandbox gets, and agrees.
        """
        new = NewSession(
            name=name,
            agent=agent,
            mode=mode,
            workdir=workdir,
            prompt=prompt,
            sandbox=sandbox,
            agrees=agrees,
            worktree=worktree,
            base=base,
        )
        await session_operations.create(self._places, await self._config_in(workdir, agent), new)

    async def create_interpreters(
        self,
        name: str,
        *,
        tier: str | None = None,
        workdir: str = "",
        prompt: str = "",
        size: str | None = None,
        hosts: tuple[str, ...] | None = None,
    ) -> None:
        """Create an interpreter sandbox; bash runs *prompt*, if there is one. None means the config's value."""
        from kasmon.supervisor.fleet.snapshot import read_fleet  # these four are rarely needed
        from kasmon.supervisor.sandboxes import sandbox_operations, use
        from kasmon.supervisor.sandboxes.create import NewSandbox

        new = NewSandbox(
            name=name,
            tier=cast("Tier", tier) if tier else None,
            size=cast("Literal['default', 'build', 'max'] | None", size),
            folder=workdir,
            hosts=hosts,
        )
        made = await sandbox_operations.create(self._places, self._config(), new)
        session = (await asyncio.to_thread(read_fleet, self._places)).get(made)
        if prompt and session is not None:
            await use.run(self._places, session, "bash", prompt)

    async def adopt_pane(self, pane: str, name: str, /) -> None:
        """Watch this pane of the user's own tmux (`%5`) as a session with this name."""
        from kasmon.supervisor.sessions.adopt import adopt  # rarely needed

        await adopt(self._places, pane, name)

    async def restart(self, session: SessionId, /) -> None:
        await session_operations.restart(self._places, self._session(session))

    async def move(self, session: SessionId, to: Mode, /, *, changes_permissions: bool = False) -> None:
        """Continue the same conversation in mode *to*.

        Args:
            changes_permissions: whether the user agrees that its permission mode cannot be kept.
        """
        from kasmon.supervisor.sessions.move import move  # rarely needed

        known = self._session(session)
        config = await self._config_in(known.config_folder, known.agent)
        await move(self._places, config, known, to, changes_permissions=changes_permissions)

    async def rename(self, session: SessionId, name: str, /) -> None:
        await list_entry.rename(self._places, self._session(session), name)

    async def mark_viewed(self, session: SessionId, /) -> None:
        await list_entry.mark_viewed(self._places, self._session(session))

    async def remove(self, session: SessionId, /) -> str:
        """Remove an ended session from the list; its log stays on disk."""
        known = self._session(session)
        if known.mode is not Mode.INTERPRETER:
            kept = await list_entry.forget(self._places, known)
        else:
            from kasmon.supervisor.sandboxes import sandbox_operations

            kept = await sandbox_operations.remove(self._places, known)
        return list_entry.copy_stays(kept) if kept else ""

    async def export(self, session: SessionId, /) -> str:
        """Write all of the session to a new file in the dashboard's own folder."""
        from kasmon.supervisor.sessions.export import as_markdown, write_beside  # rarely needed

        def write(known: Session) -> Path:
            return write_beside(Path.cwd(), known, as_markdown(self._places, known))

        known = self._session(session)
        return f"Exported {known.name} to {await asyncio.to_thread(write, known)}."

    async def send_prompt(self, session: SessionId, prompt: Prompt, /) -> str:
        known = self._session(session)
        receipt = await session_operations.send(self._places, known, prompt.text, prompt.when, anyway=prompt.anyway)
        return describe_receipt(known, receipt)

    async def change_queue(self, session: SessionId, change: Requeue, /) -> None:
        """Move, edit or remove a queued prompt."""
        await session_operations.requeue(self._places, self._session(session), change)

    async def answer(self, session: SessionId, answer: Answer, /) -> None:
        await session_operations.answer(self._places, self._session(session), answer)

    async def interrupt(self, session: SessionId, /) -> None:
        await session_operations.interrupt(self._places, self._session(session))

    async def continue_stopped(self, session: SessionId, /) -> None:
        await session_operations.continue_stopped(self._places, self._session(session))

    async def stop(self, session: SessionId, /) -> None:
        await session_operations.stop(self._places, self._session(session))

    async def configure(self, session: SessionId, changes: Configure, /) -> None:
        await session_operations.configure(self._places, self._session(session), changes)

    async def write_comment(self, session: SessionId, comment: ReviewComment, /) -> None:
        """Log a comment on lines that the session changed; if it has an id, edit the text of that comment."""
        from kasmon.supervisor.review import comments  # these four are rarely needed

        known = self._session(session)
        if comment.id:
            await comments.edit_comment(self._places, known, comment.id, comment.text)
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
        await comments.write_comment(self._places, known, built)

    async def remove_comment(self, session: SessionId, comment: str, /) -> None:
        from kasmon.supervisor.review import comments

        await comments.remove_comment(self._places, self._session(session), comment)

    async def mark_comment(self, session: SessionId, comment: str, /, *, is_resolved: bool) -> None:
        """Mark a comment as resolved, or reopen it."""
        from kasmon.supervisor.review import comments

        await comments.mark_comment(self._places, self._session(session), comment, is_resolved=is_resolved)

    async def send_comments(self, session: SessionId, /) -> str:
        """Send the open comments to the agent as one prompt."""
        from kasmon.supervisor.review import comments

        known = self._session(session)
        receipt, count = await comments.send_comments(self._places, known)
        return f"{count} {'comment' if count == 1 else 'comments'} to {describe_receipt(known, receipt)}"

    async def revert_hunk(self, session: SessionId, hunk: ShownHunk, /) -> str:
        """Take the changes of a hunk back in the worktree, if its file is still as it was shown."""
        from kasmon.supervisor.review import hunks  # these three are rarely needed

        return await asyncio.to_thread(hunks.revert_hunk, self._places, self._session(session), hunk)

    async def stage_hunk(self, session: SessionId, hunk: ShownHunk, /) -> str:
        """Add the unstaged changes of a hunk to the index, if its file is still as it was shown."""
        from kasmon.supervisor.review import hunks

        return await asyncio.to_thread(hunks.stage_hunk, self._places, self._session(session), hunk)

    async def undo_hunk(self, session: SessionId, /) -> str:
        """Undo the last reverted or staged hunk."""
        from kasmon.supervisor.review import hunks

        known = self._session(session)
        last = await asyncio.to_thread(hunks.last_action, self._places, known)
        return await asyncio.to_thread(hunks.undo_hunk, self._places, known, last)

    async def change_sandbox(self, session: SessionId, command: SandboxCommand, /) -> str:
        """Execute *command* in the session's sandbox; the output of a `Run` appears in the transcript."""
        from kasmon.supervisor.sandboxes import use

        known = self._session(session)
        if isinstance(command, Run):
            await use.run(self._places, known, command.interpreter, command.code)
            return ""
        checkpoint = await use.execute(self._places, known, command)
        if isinstance(command, Checkpoint):
            text = f"checkpoint {checkpoint} created" if checkpoint else "no checkpoint could be created"
            return f"{known.name}: {text}"
        return f"{known.name}: {checkpoint}" if checkpoint else ""

    async def fork_sandbox(self, session: SessionId, name: str, checkpoint: str = "", /) -> str:
        """Create a session called *name* from the state of this one's sandbox, now or at *checkpoint*."""
        from kasmon.model.sandbox.snapshot import describe_origin
        from kasmon.supervisor.sandboxes import sandbox_operations

        known = self._session(session)
        made = await sandbox_operations.fork(self._places, known, name, checkpoint)
        text = f"Created {name} from {known.name}, {describe_origin(made.origin)}."
        return f"{text} {known.name} lost: {made.lost}" if made.lost else text

    async def replay_sandbox(self, session: SessionId, name: str, checkpoint: str = "", /) -> str:
        """Create a session called *name*, and run in it what this one ran until *checkpoint* (empty: until now)."""
        from kasmon.supervisor.sandboxes import sandbox_operations

        return await sandbox_operations.replay_session(self._places, self._session(session), name, checkpoint)

    async def decide_on_plan(self, plan: str, action: PlanAction, task: str = "", agent: str = "", /) -> None:
        """Apply a decision to a running plan; *agent* takes the task over, for `replace`."""
        from kasmon.supervisor.plans import decisions  # imports all plan modules

        config, fleet = self._config(), self._fleet()
        await asyncio.to_thread(decisions.record_decision, self._places, config, fleet, plan, action, task, agent)

    async def apply_plan_edit(self, plan: str, digest: str, /) -> None:
        """Apply the edited file of this plan, as it was shown."""
        from kasmon.supervisor.plans import decisions

        await asyncio.to_thread(decisions.apply_edit, self._places, self._config(), plan, digest)

    async def finish(self, session: SessionId, plan: "PlannedFinish", report: Callable[[str], None], /) -> str:
        """Do with the session's branch what *plan* says; *report* gets a sentence after each step.

        Raises:
            StaleRequestError: if a commit or a file changed since the plan was made; nothing is done then.
        """
        from kasmon.supervisor.finish.finish import finish  # rarely needed

        loop = asyncio.get_running_loop()

        def pass_on(text: str) -> None:
            loop.call_soon_threadsafe(report, text)

        result = await finish(self._places, self._session(session), plan, pass_on)
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

        outcome = await merge_one_by_one(self._places, sessions, plan, pass_on, decide)
        await asyncio.sleep(0)  # for the last report
        return "\n".join(outcome_lines(outcome, len(plan.steps)))

    async def send_feedback(self, session: SessionId, /) -> str:
        """Send the agent the failed checks of its pull request and the comments of reviewers."""
        from kasmon.supervisor.finish.feedback import send_feedback  # rarely needed

        known = self._session(session)
        receipt = await send_feedback(self._places, known)
        return f"{known.name}: {RECEIPT_WORDS[receipt.state]}: {receipt.text}"

    async def save_theme(self, name: str, /) -> None:
        """Write this theme's name into the config."""
        await asyncio.to_thread(put, self._places, "ui.theme", name)

    async def save_split(self, split: msgspec.Struct, /) -> None:
        """Store how the window is split, a `protocol.Split`, for the next start."""

        def write() -> None:
            self._places.make()
            write_private(self._places.split, msgspec.json.encode(split))

        await asyncio.to_thread(write)

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
        opener = next((path for name in OPENERS if (path := shutil.which(name))), None)
        if opener is None:
            raise UnavailableError(
                f"cannot open a browser: {OPENERS[0]!r} is not on PATH.", hint="Copy the address instead."
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
            raise UnavailableError(f"{OPENERS[0]} could not open the address.", hint="Copy the address instead.")

    async def send_alert(self, alert: Alert, /) -> None:
        """Notify the user outside the terminal: on the desktop, and by the config's command."""
        await self._delivery.call(alert, self._config().notify)

    async def _config_in(self, folder: str, agent: str) -> Config:
        return (await asyncio.to_thread(for_session, self._places, self._config(), folder, agent)).config

    def _session(self, session: SessionId) -> Session:
        known = self._fleet().get(session)
        if known is None:
            raise SessionNotFoundError(session)
        return known


def describe_receipt(session: Session, receipt: Receipt) -> str:
    """Return how far a prompt for *session* got, in a few words."""
    reason = f" ({receipt.reason})" if receipt.reason else ""
    return f"{session.name}: {RECEIPT_WORDS[receipt.state]}{reason}"
