"""Few modules above the bus ask on which machine a session is; each has its reason.

What is done to a session is done where that is by `kasmon.supervisor.machines.dispatch`; `Fleet.here` are the sessions
of this machine; `check_here` refuses others.
"""

import ast
from typing import Final

import pytest

from tests.support.syntax_trees import modules, nodes, parse

ABOVE: Final = ("cli", "tui", "mcp", "acp", "web", "execution", "supervisor")
PLACE: Final = "kasmon/supervisor/machines/"
"""The modules that know other machines: all others go through these."""
ALLOWED: Final[dict[str, dict[str, int]]] = {
    "It finds sessions by name, or refuses those of other machines for all others.": {
        "kasmon/supervisor/fleet/lookup.py": 5,
    },
    "The state of such a session is what the link to its machine reported; no process of it is probed here.": {
        "kasmon/supervisor/fleet/process_usage.py": 1,
        "kasmon/supervisor/fleet/sandbox_adoption.py": 2,
        "kasmon/supervisor/fleet/snapshot.py": 1,
        "kasmon/supervisor/fleet/watch.py": 3,
    },
    "Of the sessions that it is given, it acts on those of this machine: it reads their folders or hosts.": {
        "kasmon/supervisor/sessions/other_hosts.py": 1,
        "kasmon/supervisor/sessions/tmux_host.py": 1,
    },
    "It shows the machine, or lists by it.": {
        "kasmon/cli/ls.py": 1,
        "kasmon/cli/output/table.py": 2,
        "kasmon/cli/show.py": 3,
        "kasmon/tui/actions/general.py": 1,
        "kasmon/tui/dialogs/shell_command.py": 1,
        "kasmon/tui/session_list/order.py": 1,
        "kasmon/tui/session_list/row.py": 1,
        "kasmon/tui/session_list/table.py": 1,
        "kasmon/tui/session_pane.py": 1,
    },
    "It refuses with its own words, which say what is possible instead.": {
        "kasmon/cli/sessions.py": 3,
        "kasmon/supervisor/finish/merge_plan.py": 1,
        "kasmon/supervisor/limits/log_in.py": 1,
        "kasmon/supervisor/limits/permission.py": 1,
        "kasmon/supervisor/prompts/fork.py": 2,
        "kasmon/supervisor/sandboxes/sandbox_operations.py": 1,
        "kasmon/tui/actions/session.py": 1,
        "kasmon/tui/actions/transcript.py": 2,
        "kasmon/tui/finish/controller.py": 1,
    },
    "A file is on that machine: it is copied first, or nothing is looked for.": {
        "kasmon/supervisor/review/comments.py": 1,
        "kasmon/supervisor/search/search.py": 1,
    },
    "A session is reached by the link; an end of that leaves unknown what was done.": {
        "kasmon/supervisor/sessions/session_operations.py": 2,
        "kasmon/web/request_handler.py": 1,
    },
    "The copies of its machine change by themselves, or only its owner may change them.": {
        "kasmon/tui/gateway/live/gateway.py": 2,
        "kasmon/tui/gateway/live/marks.py": 1,
        "kasmon/tui/gateway/operations.py": 1,
    },
    "An agent asks the machine of a session that it started there; it sees no others of other machines.": {
        "kasmon/mcp/fleet_tools.py": 2,
    },
    "What another machine says of an agent there makes nobody a person here.": {
        "kasmon/supervisor/limits/agents.py": 1,
    },
    "A plan places its tasks on machines.": {
        "kasmon/supervisor/plans/boards.py": 1,
        "kasmon/supervisor/plans/machines/offer.py": 1,
        "kasmon/supervisor/plans/machines/registered_tasks.py": 1,
        "kasmon/supervisor/plans/peers/context.py": 2,
        "kasmon/supervisor/plans/runner.py": 1,
        "kasmon/supervisor/plans/start_limits.py": 1,
    },
    "Its parameters do not begin with the folders and the session.": {
        "kasmon/supervisor/sessions/move.py": 1,
    },
}
"""Reason -> the modules that ask for it, and in how many places."""


def questions(tree: ast.AST) -> int:
    """How often *tree* decides by a session's machine: by a condition, a comparison, or a value instead of none."""
    decided: list[ast.AST] = []
    for node in nodes(tree):
        match node:
            case ast.If() | ast.IfExp() | ast.While() | ast.Assert():
                decided.append(node.test)
            case ast.comprehension():
                decided += node.ifs
            case ast.BoolOp() | ast.Compare():
                decided.append(node)
            case ast.UnaryOp(op=ast.Not()):
                decided.append(node.operand)
            case ast.Call(func=ast.Name(id="bool" | "any" | "all")):
                decided += node.args
    found = (each for node in decided for each in nodes(node))
    asked = {id(each) for each in found if isinstance(each, ast.Attribute) and each.attr == "via"}
    called = {id(node.func) for node in nodes(tree) if isinstance(node, ast.Call)}
    return len(asked - called)


def is_above(name: str) -> bool:
    return name.split("/")[1] in ABOVE and not name.startswith(PLACE)


def test_only_these_modules_ask_where_a_session_is() -> None:
    allowed = {name: count for group in ALLOWED.values() for name, count in group.items()}
    found = {name: count for name, tree in modules().items() if is_above(name) and (count := questions(tree))}

    assert allowed == found, "use kasmon.supervisor.machines.dispatch, Fleet.here or check_here; or correct ALLOWED"
    assert len(allowed) == sum(map(len, ALLOWED.values())), "a module is named twice"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("if session.via: pass", 1),
        ("x = [each for each in found if not each.via]", 1),
        ("x = session.via or 'here'", 1),
        ("x = a if session.via == b else c", 1),
        ("x = bool(session.via) and not other.via", 2),
        ("x = any(each.via for each in found)", 1),
        ("run(paths, session.via, words)", 0),
        ("if paths.via(session).exists(): pass", 0),
    ],
)
def test_each_question_counts(source: str, count: int) -> None:
    assert count == questions(parse(source))
