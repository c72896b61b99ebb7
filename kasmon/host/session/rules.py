"""How the user's standing rules decide one session's requests, and which rule an answer would add."""

import logging
import time
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import ConfigError, KasmonError, UnableError
from kasmon.host.journal.secrets import secrets_of
from kasmon.model.commands import Answer, Launch
from kasmon.model.permission import Decision, Request, RequestKind
from kasmon.model.rule import RequestSource, Rule, RuleEffect, decide, describe, draft_rule
from kasmon.paths import Paths
from kasmon.sanitize import has_hidden, redact
from kasmon.store.rules import RuleBook

STANDING: Final = {Decision.ALWAYS: RuleEffect.ALLOW, Decision.NEVER: RuleEffect.DENY}
"""Decisions that make a rule, and the rule's effect."""
ONCE: Final = {Decision.ALWAYS: Decision.ALLOW, Decision.NEVER: Decision.DENY}
"""The decision sent to the agent instead: rules are kasmon's own, so they can be listed and revoked."""

log = logging.getLogger(__name__)


class SessionRules:
    """The rules that apply to the session of *launch*; `refresh` reads them again, from a thread."""

    def __init__(self, paths: Paths, launch: Launch) -> None:
        self._book = RuleBook(paths.rules)
        self._paths = paths
        self._launch = launch
        self._rules: tuple[Rule, ...] = ()
        self._secrets: tuple[str, ...] = ()
        self.where = RequestSource(launch.session, launch.plan, launch.workdir, launch.workdir)
        self.trouble = ""
        """Why no rule applies at the moment; empty while they can be read."""

    def refresh(self) -> None:
        """Read the rules and the session's secrets; rules that cannot be read answer nothing."""
        project = project_of(self._launch.workdir)
        self.where = RequestSource(self._launch.session, self._launch.plan, project, self._launch.workdir)
        self._secrets = secrets_of(self._paths, self._launch.session, self._launch.argv)
        try:
            self._rules, self.trouble = self._book.read(), ""
        except ConfigError as error:
            self._rules, self.trouble = (), str(error)

    def offered(self, request: Request) -> Request:
        """Return *request* with "always" and "never" if a rule can match it exactly without a secret."""
        others = tuple(choice for choice in request.choices if choice not in STANDING)
        plain = msgspec.structs.replace(request, choices=others, rule="")
        can_decide = request.kind is RequestKind.PERMISSION and request.answerable and Decision.ALLOW in others
        if not can_decide or (says := draft_rule(request, self.where.workdir)) is None:
            return plain
        rule = describe(request.tool, says.match, says.text)
        says_all = not has_hidden(f"{rule}\n{request.shown}")
        if not says_all or redact(rule, self._secrets)[1] or redact(request.shown, self._secrets)[1]:
            return plain
        at = others.index(Decision.ALLOW) + 1
        never = (Decision.NEVER,) if Decision.DENY in others else ()
        choices = (*others[:at], Decision.ALWAYS, *others[at:], *never)
        return msgspec.structs.replace(plain, choices=choices, rule=rule)

    def decides(self, request: Request) -> Rule | None:
        """Return the rule that answers *request* in place of the user."""
        return decide(request, self._rules, self.where)

    def remember(self, request: Request, answer: Answer) -> Rule:
        """Store the rule that *answer* to *request* makes. Blocks.

        Raises:
            UnableError: if there is no such rule to make.
            KasmonError: if it cannot be stored; nothing was answered then.
        """
        says, of = draft_rule(request, self.where.workdir), self.where.of(answer.scope)
        if says is None:
            raise UnableError(
                f"no rule can match exactly what {request.id!r} asks for.", hint=("Answer it with `allow` or `deny`.")
            )
        if not of:
            raise UnableError(
                f"session {self._launch.session!r} does not belong to a plan.",
                hint="Use the scope `session` or `project`.",
            )
        rule = Rule(
            id="",
            effect=STANDING[answer.decision],
            scope=answer.scope,
            of=of,
            tool=request.tool,
            match=says.match,
            text=says.text,
            made_at=time.time(),
            request=request.id,
        )
        try:
            kept = self._book.add(rule)
        except OSError as error:
            where = str(self._book.path)
            raise KasmonError(f"the rule cannot be saved in {where!r}: {error.strerror or error}.") from error
        self.refresh()
        return kept

    def forget(self, rule: Rule) -> None:
        """Remove *rule*. Blocks. Raises `KasmonError` if it cannot be removed."""
        try:
            self._book.remove(rule.id)
        except OSError as error:
            raise KasmonError(f"rule {rule.id!r} cannot be revoked: {error.strerror or error}.") from error


def project_of(workdir: str) -> str:
    """Return the project folder of *workdir*: the nearest folder at or above it that is under git, else itself.

    An invalid path, or one on another machine, is its own project.
    """
    if not Path(workdir).is_absolute():
        return workdir
    try:
        resolved = Path(workdir).resolve()
        return str(next((folder for folder in (resolved, *resolved.parents) if (folder / ".git").exists()), resolved))
    except (OSError, ValueError, RuntimeError):
        return workdir
