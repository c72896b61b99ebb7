"""Opens the finish screen, plans what its keys ask for, and has it done exactly as it was shown."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.errors import KasmonError, PushedCommitsError, StaleRequestError
from kasmon.model.commands import Prompt
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.transcript.text import Token
from kasmon.repository.branch import BranchSummary
from kasmon.sanitize import clean_line
from kasmon.tui.action import Handlers
from kasmon.tui.actions.dialogs import confirm_action
from kasmon.tui.app_protocols import Dashboard
from kasmon.tui.error_text import sentence, what_failed
from kasmon.tui.keymap import Keys

if TYPE_CHECKING:
    from kasmon.supervisor.finish.finish_plan import FinishRequest, PlannedFinish
    from kasmon.supervisor.finish.merge_plan import MergePlan, MergeStep, OnConflict
    from kasmon.tui.finish.dialogs import FinishOptions, OptionsDialog
    from kasmon.tui.finish.screen import FinishScreen

CHANGED: Final = "Something changed since this was shown. The plan now:"
REWRITE: Final = "Do this only if you alone work on the branch. The next question shows what is done."


class FinishController:
    """The finish screen of one dashboard, and the commit messages that agents proposed."""

    def __init__(self, app: Dashboard) -> None:
        self.app = app
        self.branches: Mapping[SessionId, BranchSummary] = {}
        self._shown: FinishScreen | None = None
        self._asked: set[SessionId] = set()
        """The sessions whose agents were asked for a commit message."""
        self._proposals: dict[SessionId, str] = {}
        self._running: set[SessionId] = set()

    @property
    def screen(self) -> "FinishScreen | None":
        return self._shown if self._shown is not None and self._shown in self.app.screen_stack else None

    def _screen_of(self, session: Session) -> "FinishScreen | None":
        return screen if (screen := self.screen) is not None and screen.session.id == session.id else None

    def open(self) -> None:
        session = self.app.main_view.table.selected_session
        if session is None:
            return
        if session.worktree is None and session.id not in self.branches and not session.via:  # its machine knows
            name = clean_line(session.label)
            self.app.say(f"{name} works in no git worktree. Use git in its folder.", severity="warning")
            return
        from kasmon.tui.finish.screen import FinishScreen  # not before the first frame

        self._shown = FinishScreen(self.app.look, self.app.keys, session, self.handlers)
        if (collision := self.app.main_view.table.collisions.get(session.id)) is not None:
            self._shown.overlap = collision.text
        self.app.push_screen(self._shown)
        self._refresh(session)

    def show_branches(self, branches: Mapping[SessionId, BranchSummary]) -> None:
        """Take the current *branches*; an open screen is refreshed if its own changed."""
        before, self.branches = self.branches, branches
        if (screen := self.screen) is not None:
            id_ = screen.session.id
            if before.get(id_) != branches.get(id_) and id_ not in self._running:
                self._refresh(screen.session)

    @property
    def handlers(self) -> Handlers:
        """The method for each key of the screen that needs more than the screen."""
        from kasmon.supervisor.finish.finish_plan import FinishRequest
        from kasmon.tui.finish import dialogs

        ask, plan, on_shown, message = self._ask, self._plan, self._on_shown, self._proposal
        return {
            Keys.FINISH_FIX: on_shown(self._send_feedback),
            Keys.FINISH_COMMIT: on_shown(lambda session: ask(session, dialogs.commit_options(message(session)))),
            Keys.FINISH_MESSAGE: on_shown(self._ask_for_message),
            Keys.FINISH_UPDATE: on_shown(lambda session: ask(session, dialogs.update_options())),
            Keys.FINISH_PUSH: on_shown(lambda session: plan(session, "Push", FinishRequest(pushes=True))),
            Keys.FINISH_PROPOSE: on_shown(lambda session: ask(session, dialogs.proposal_options(message(session)))),
            Keys.FINISH_MERGE: on_shown(lambda session: ask(session, dialogs.merge_options(message(session)))),
            Keys.FINISH_MERGE_PLAN: on_shown(self._plan_merges),
            Keys.FINISH_TAKE_OVER: on_shown(lambda session: plan(session, "Take over", FinishRequest(takes_over=True))),
            Keys.FINISH_DISCARD: on_shown(lambda session: plan(session, "Discard", FinishRequest(discards=True))),
            Keys.FINISH_REFRESH: on_shown(self._refresh, waits=False),
        }

    def _on_shown(self, act: Callable[[Session], object], *, waits: bool = True) -> Callable[[], None]:
        """Return a handler that runs *act* for the session on the screen; not during an operation, if it *waits*."""

        def run() -> None:
            if (screen := self.screen) is None:
                return
            if waits and screen.session.id in self._running:
                screen.note(("Wait until this is done.", Token.WARNING))
            else:
                act(screen.session)

        return run

    def _send_feedback(self, session: Session) -> None:
        self.app.run_operation(
            lambda operations: operations.send_feedback(session.id),
            done=partial(self._note_receipt, session),
            failed=partial(self._note_error, session),
        )

    def _ask(self, session: Session, options: "FinishOptions") -> None:
        """Ask for *options*, and plan what the user chose."""
        from kasmon.tui.finish.dialogs import OptionsDialog

        def then(dialog: "OptionsDialog", request: "FinishRequest") -> None:
            self._plan(session, options.title, request, dialog)

        self.app.push_screen(OptionsDialog(self.app.look, self.app.keys, options, then))

    def _proposal(self, session: Session) -> str:
        """Return the message that its agent proposed; else the last prompt that a person wrote, else its name."""
        from kasmon.supervisor.finish.commit_message import is_of_kasmon

        written = (each.text for each in reversed(session.receipts) if each.by in ("user", ""))
        prompts = (text for text in written if text and not is_of_kasmon(text))
        return self._proposals.get(session.id) or clean_line(next(prompts, "")) or clean_line(session.name)

    # What is left to do.

    def _refresh(self, session: Session) -> None:
        self.app.run_worker(self._read(session), group="finish-read", exclusive=True)

    async def _read(self, session: Session) -> None:
        from kasmon.supervisor.finish.finish_plan import FinishRequest

        gateway, screen = self.app.gateway, self._screen_of(session)
        if gateway is None or screen is None:
            return
        try:
            screen.show(await gateway.plan_finish(session.id, FinishRequest()))
            if session.id in self._asked and (proposed := await gateway.read_proposed_message(session.id)):
                self._asked.discard(session.id)
                self._proposals[session.id] = proposed
                screen.note((f"The agent proposes: {proposed}", Token.OK))
        except KasmonError as error:
            screen.note(*_error_notes(error))

    # Doing it.

    def _plan(
        self,
        session: Session,
        title: str,
        request: "FinishRequest",
        dialog: "OptionsDialog | None" = None,
        note: str = "",
    ) -> None:
        """Plan *request* and have the user confirm it; *note* is the first line of the question."""
        self.app.run_worker(self._confirm(session, title, request, dialog, note), group="finish-plan", exclusive=True)

    async def _confirm(
        self, session: Session, title: str, request: "FinishRequest", dialog: "OptionsDialog | None", note: str
    ) -> None:
        from kasmon.tui.finish.dialogs import DiscardDialog
        from kasmon.tui.finish.screen import plan_lines

        def is_wanted() -> bool:
            return dialog.is_open if dialog is not None else self._screen_of(session) is not None

        if (gateway := self.app.gateway) is None:
            return
        try:
            plan = await gateway.plan_finish(session.id, request)
        except PushedCommitsError as error:
            if is_wanted():
                self._confirm_rewrite(session, title, request, dialog, error)
            return
        except KasmonError as error:
            if dialog is None or not dialog.handle_failure(error):
                self._note_error(session, error)
            return
        if not is_wanted():
            return
        if dialog is not None:
            dialog.dismiss()
        lines = (*([note] if note else []), *plan_lines(plan))
        if request.discards:
            names = [name for name in (session.name, plan.state.name) if name]
            show = DiscardDialog(
                self.app.look, self.app.keys, plan, names, lines, lambda plan: self._carry_out(session, title, plan)
            )
            self.app.push_screen(show)
            return

        yes = title.partition(" ")[0].lower()
        confirm_action(self.app, title, lines, yes, lambda: self._carry_out(session, title, plan))

    def _confirm_rewrite(
        self,
        session: Session,
        title: str,
        request: "FinishRequest",
        dialog: "OptionsDialog | None",
        error: PushedCommitsError,
    ) -> None:
        if dialog is not None:
            dialog.dismiss()
        lines, rewrite = (sentence(error.message), REWRITE), msgspec.structs.replace(request, rewrites=True)
        plan = partial(self._plan, session, title, rewrite)
        confirm_action(self.app, "Replace pushed commits", lines, "replace them", plan)

    def _carry_out(self, session: Session, title: str, plan: "PlannedFinish") -> None:
        """Do what *plan* says; if something changed since it was made, show the new plan."""
        self._set_running(session, "; ".join(step.text for step in plan.steps) or title)
        done: list[str] = []

        def report(text: str) -> None:
            done.append(text)
            if (screen := self._screen_of(session)) is not None:
                screen.note((f"{text[:1].upper()}{text[1:]}", Token.OK))

        def succeed(text: str) -> bool:
            screen = self._set_running(session, "")
            if screen is None or plan.request.discards:
                if screen is not None:
                    screen.dismiss()
                self.app.say("\n".join([f"{clean_line(session.label)}: {line}" for line in [*done, text] if line]))
                return True
            if text:
                screen.note((text, Token.WARNING))
            self._proposals.pop(session.id, None)
            self._refresh(session)
            return True

        def fail(error: KasmonError) -> bool:
            screen = self._set_running(session, "")
            if screen is None:
                return False
            if isinstance(error, StaleRequestError):
                self._plan(session, title, plan.request, note=CHANGED)
            else:
                screen.note(*_error_notes(error))
                self._refresh(session)
            return True

        self.app.run_operation(
            lambda operations: operations.finish(session.id, plan, report), done=succeed, failed=fail
        )

    # Several branches.

    def _plan_merges(self, session: Session, note: str = "") -> None:
        self.app.run_worker(self._confirm_merges(session, note), group="finish-plan", exclusive=True)

    async def _confirm_merges(self, session: Session, note: str) -> None:
        """Have the user confirm the merges of the branches that overlap; *note* is the question's first line."""
        from kasmon.supervisor.finish.merge_plan import plan_lines

        gateway, screen = self.app.gateway, self._screen_of(session)
        if gateway is None or screen is None:
            return
        collision = self.app.main_view.table.collisions.get(session.id)
        if collision is None or not collision.others:
            text = "No other worktree changes the same files. `kasmon merge-plan` merges any branches in an order."
            screen.note((text, Token.NOTICE))
            return
        try:
            plan = await gateway.plan_merges([session.id, *collision.others])
        except KasmonError as error:
            self._note_error(session, error)
            return
        if self._screen_of(session) is None:
            return

        lines = (*([note] if note else []), *plan_lines(plan))
        merge = partial(self._carry_out_merges, session, plan)
        confirm_action(self.app, "Merge several branches", lines, "merge", merge)

    def _carry_out_merges(self, session: Session, plan: "MergePlan") -> None:
        """Merge as *plan* says; if something changed since it was made, show the new plan."""
        self._set_running(session, f"Merging into {plan.base_name}")

        def succeed(text: str) -> bool:
            if (screen := self._set_running(session, "")) is None:
                self.app.say(text)
            else:
                self._refresh(session)
                screen.note(*((clean_line(line), Token.OK) for line in text.split("\n")))
            return True

        def fail(error: KasmonError) -> bool:
            screen = self._set_running(session, "")
            if screen is not None:
                self._refresh(session)
            if screen is not None and isinstance(error, StaleRequestError):
                self._plan_merges(session, CHANGED)
                return True
            return self._note_error(session, error)

        def report(text: str) -> None:
            self._note_receipt(session, f"{text[:1].upper()}{text[1:]}")

        self.app.run_operation(
            lambda operations: operations.merge_one_by_one(plan, report, self._decide_conflict),
            done=succeed,
            failed=fail,
        )

    async def _decide_conflict(self, step: "MergeStep", files: tuple[str, ...]) -> "OnConflict":
        """Ask what is done with the branch of *step*, which conflicts in *files*; to stop, without the screen."""
        from kasmon.tui.finish.dialogs import ConflictDialog

        if self.screen is None:
            return "stop"
        answer: asyncio.Future[OnConflict] = asyncio.get_running_loop().create_future()

        def then(choice: "OnConflict") -> None:
            if not answer.done():
                answer.set_result(choice)

        problem = f"{step.branch} conflicts in {', '.join(map(repr, files))}."
        self.app.push_screen(
            ConflictDialog(self.app.look, self.app.keys, f"Conflict of {clean_line(step.name)}", problem, then)
        )
        return await answer

    def _ask_for_message(self, session: Session) -> None:
        from kasmon.supervisor.finish.commit_message import PROMPT

        def show(text: str) -> bool:
            self._asked.add(session.id)
            return self._note_receipt(session, f"Asked for a commit message. {text}")

        prompt = Prompt(text=PROMPT, when="idle")
        self.app.session_pane.send_prompt(session.id, prompt, done=show, failed=partial(self._note_error, session))

    def _set_running(self, session: Session, text: str) -> "FinishScreen | None":
        """Note what is being done with the branch, empty for nothing; return the screen of *session* if it is open."""
        (self._running.add if text else self._running.discard)(session.id)
        if (screen := self._screen_of(session)) is not None:
            screen.set_running(text)
        return screen

    def _note_receipt(self, session: Session, text: str) -> bool:
        """Show *text* on the screen of *session*; return whether it is open."""
        if (screen := self._screen_of(session)) is not None:
            screen.note((text, Token.OK))
        return screen is not None

    def _note_error(self, session: Session, error: KasmonError) -> bool:
        """Show *error* on the screen of *session*; return whether it is open."""
        if (screen := self._screen_of(session)) is not None:
            screen.note(*_error_notes(error))
        return screen is not None


def _error_notes(error: KasmonError) -> Sequence[tuple[str, Token]]:
    first, *hints = what_failed(error).split("\n")
    return [(first, Token.ERROR), *((hint, Token.NOTICE) for hint in hints)]
