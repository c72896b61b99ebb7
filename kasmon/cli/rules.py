"""`kasmon rules`: list or revoke the standing rules that answer requests."""

from datetime import datetime
from typing import Annotated, Literal

from kasmon.cli.arguments import Arg, Json, OnMachine
from kasmon.cli.output.console import check_machine, note_other_machines, print_json, say
from kasmon.cli.output.json_objects import rule_object
from kasmon.errors import UsageError
from kasmon.model.rule import Rule
from kasmon.paths import user_paths
from kasmon.sanitize import visible
from kasmon.store.machines import ALL
from kasmon.store.rules import RuleBook


def rules(
    act: Annotated[Literal["ls", "rm"], Arg("List rules, or revoke them.")] = "ls",
    /,
    *wanted: Annotated[str, Arg("With `rm`: rule ids.")],
    machine: OnMachine = "",
    wants_json: Json = False,
) -> int:
    """List or revoke the standing rules that answer requests for you."""
    if act == "ls" and wanted:
        raise UsageError(f"`kasmon rules ls` accepts no argument {wanted[0]!r}.")
    if act == "ls" and machine == ALL:
        from kasmon.cli.machines.tables import MachineTable, print_all  # only for several machines

        heads = ("ID", "EFFECT", "RULE", "SCOPE", "OF", "CREATED")
        table = MachineTable(("rules",), "rules", Rule, heads, cells, "No standing rules.")
        return print_all(table, wants_json=wants_json)
    check_machine(machine)
    rule_book = RuleBook(user_paths().rules)
    if act == "ls":
        found = rule_book.read()
    else:
        if not wanted:
            raise UsageError("`kasmon rules rm` requires the id of a rule.", hint="`kasmon rules ls` lists the ids.")
        from kasmon.supervisor.limits.agents import check_is_person  # only where something is changed

        check_is_person(user_paths(), "revoke rules")
        found = tuple(rule_book.remove(rule) for rule in wanted)
    if wants_json:
        print_json(rules=[rule_object(rule) for rule in found])
        return 0
    for rule in found:
        say(line(rule) if act == "ls" else f"{rule.id}: revoked")
    if act == "ls" and not found:
        say("No standing rules.")
    if act == "ls":
        note_other_machines(user_paths(), machine, "rules")
    return 0


def line(rule: Rule) -> str:
    id_, effect, text, scope, of, made = cells(rule)
    return f"{id_}  {effect}  {text}  {scope} {of}  {made}"


def cells(rule: Rule) -> tuple[str, str, str, str, str, str]:
    """Return its id, effect, text, scope, what that is of, and when it was created."""
    made = datetime.fromtimestamp(rule.made_at).astimezone().strftime("%Y-%m-%d %H:%M") if rule.made_at else "-"
    return rule.id, rule.effect, visible(rule.words), rule.scope, visible(rule.of), made
