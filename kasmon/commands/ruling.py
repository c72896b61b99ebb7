"""`kasmon rules`: the standing rules, listed and revoked."""

from collections.abc import Sequence
from datetime import datetime

from kasmon.clean import visible
from kasmon.commands.objects import answer, rule_object
from kasmon.commands.output import say, tell
from kasmon.errors import UsageError
from kasmon.model.rule import Rule
from kasmon.paths import places
from kasmon.store.rules import RuleBook


def rules(act: str, wanted: Sequence[str], *, wants_json: bool) -> None:
    """List the standing rules (*act* `ls`), or revoke those that are *wanted* (`rm`).

    Raises:
        UsageError: if there is no such act, or nothing to revoke was named.
        NotFoundError: if there is no such rule; those before it are revoked.
        ConfigError: if the rules cannot be read.
    """
    book = RuleBook(places().rules)
    if act == "ls":
        if wanted:
            raise UsageError(f"`kasmon rules ls` takes no {wanted[0]!r}.")
        found = book.read()
    elif act == "rm":
        if not wanted:
            raise UsageError("there is no rule to revoke.", hint="`kasmon rules ls` shows their ids.")
        found = tuple(book.remove(rule) for rule in wanted)
    else:
        raise UsageError(f"there is no `kasmon rules {act}`.", hint="There are `ls` and `rm`.")
    if wants_json:
        tell(answer(rules=[rule_object(rule) for rule in found]))
        return
    for rule in found:
        say(line(rule) if act == "ls" else f"{rule.id}: revoked")
    if act == "ls" and not found:
        say("There are no standing rules.")


def line(rule: Rule) -> str:
    """One rule for people."""
    made = datetime.fromtimestamp(rule.made_at).astimezone().strftime("%Y-%m-%d %H:%M") if rule.made_at else "-"
    return f"{rule.id}  {rule.effect}  {visible(rule.words)}  {rule.scope} {visible(rule.of)}  {made}"
