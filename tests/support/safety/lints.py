"""What no module of kasmon may do, told from its syntax tree: each lint yields line and reason."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from tests.support.syntax_trees import nodes


class Finding(NamedTuple):
    line: int
    why: str


Lint: TypeAlias = Callable[[ast.Module, str], Iterator[Finding]]
"""Takes a module and its path within the project."""

MARKUP_WIDGETS: Final = frozenset(
    {
        "Button",
        "Checkbox",
        "Collapsible",
        "DataTable",
        "Digits",
        "Label",
        "Link",
        "ListItem",
        "Markdown",
        "Option",
        "OptionList",
        "RadioButton",
        "RichLog",
        "Select",
        "SelectionList",
        "Static",
        "Tab",
        "TabPane",
        "TabbedContent",
        "Tabs",
        "Tooltip",
        "Tree",
    }
)
"""Textual's widgets whose texts are markup unless they are told otherwise."""
POSSESSIVE_GROUP: Final = re.compile(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+")
MARKUP_WORDS: Final = frozenset({"border_title", "border_subtitle", "tooltip", "placeholder", "help"})
"""Attributes and arguments that are markup where they are strings."""
TMUX_COMMANDS: Final = frozenset(
    {
        "attach-session",
        "capture-pane",
        "display-message",
        "has-session",
        "kill-pane",
        "kill-server",
        "kill-session",
        "kill-window",
        "list-panes",
        "list-sessions",
        "list-windows",
        "load-buffer",
        "new-session",
        "new-window",
        "paste-buffer",
        "pipe-pane",
        "refresh-client",
        "rename-session",
        "rename-window",
        "resize-window",
        "respawn-pane",
        "run-shell",
        "select-pane",
        "send-keys",
        "set-environment",
        "set-option",
        "show-options",
        "source-file",
        "split-window",
        "start-server",
        "switch-client",
    }
)
STARTERS: Final = frozenset({"run", "Popen", "call", "check_call", "check_output"})
BY_NAME: Final = frozenset({"pkill", "killall", "pgrep"})
WRITERS: Final = frozenset(
    {
        ("kasmon/paths.py", "write_private"),
        ("kasmon/cli/plan/commands.py", "init"),  # a new file of a person, where they ask for it, with their umask
        ("kasmon/backends/common/environment.py", "search_path"),  # a program in a folder of ours, 0700
        ("kasmon/repository/file_restore.py", "_open_folder"),  # a folder of a person, where they ask for it
        ("kasmon/repository/file_restore.py", "_replace"),  # a file of a person, where they ask for it
        ("kasmon/store/event_log.py", "append"),  # one line under flock, 0600
        ("kasmon/store/file_lock.py", "lock"),  # a lock, 0600
        ("kasmon/store/fleet_cache.py", "_open"),  # 0600, a cache
        ("kasmon/supervisor/sessions/export.py", "write"),  # a new file of a person, 0600
        ("kasmon/store/search_index.py", "_open"),  # likewise
        ("kasmon/store/terminal_record.py", "append"),  # one line of its only writer, 0600
        ("kasmon/host/rpc/host_lock.py", "_lock"),  # 0600
        ("kasmon/emit.py", "_append"),  # a hook's note, 0600, one line under flock
        ("kasmon/backends/tmux/evidence/hooks.py", "_truncate"),  # the notes, once all of them were read
        ("kasmon/host/journal/log_file.py", "open_log"),  # what a host or the dashboard prints for itself, 0600
        ("kasmon/config/edit.py", "_replace"),  # a person's own file, with its mode and through its link
        ("kasmon/tmux/server.py", "_hold_lock"),  # a lock, 0600
        ("kasmon/demo/run.py", "save"),  # the picture, where the person wants it
        ("kasmon/repository/packs.py", "build_pack"),  # a pack, part by part, in a folder that is 0700
        ("kasmon/supervisor/plans/machines/registered_tasks.py", "_receive"),  # likewise
        ("kasmon/supervisor/plans/machines/task_work.py", "add_commits"),  # likewise
        ("kasmon/supervisor/plans/peers/messages.py", "write_note"),  # a plan's notes, 0600, one entry under flock
        ("kasmon/sandbox/agent/context_files.py", "make"),  # what an agent inside sees of kasmon: anybody may read it
        ("kasmon/sandbox/agent/context_files.py", "_put"),  # likewise; its notes are for the sandbox's user alone
        ("kasmon/sandbox/checkpoint/object_store.py", "_write_file"),  # a checkpoint's file, with its own mode
        ("kasmon/sandbox/checkpoint/object_store.py", "apply_mode"),  # likewise a folder's mode
        (
            "kasmon/sandbox/guest/environment.py",
            "write_file",
        ),  # inside a sandbox: a volatile file with the mode that is wanted
        ("kasmon/sandbox/guest/files.py", "_put"),  # inside a sandbox: its workspace, each file with its own mode
        ("kasmon/sandbox/guest/files.py", "_note"),  # inside a sandbox: what its workspace was
        ("kasmon/sandbox/guest/private_folder.py", "write"),  # inside a sandbox: what interpreters are given, 0600
        ("kasmon/sandbox/guest/python_state.py", "save"),  # inside a sandbox: into a file of the line above
        (
            "kasmon/sandbox/guest/python_worker.py",
            "_text",
        ),  # inside a sandbox: stdout and stderr, where code closed them
        ("kasmon/sandbox/guest/interpreter.py", "prefer_oom_kill"),  # the kernel's
        ("kasmon/sandbox/e2b/guest_setup.py", "_pack_guest"),  # into memory
        ("kasmon/sandbox/shared/processes.py", "listen"),  # a socket becomes 0600
        (
            "kasmon/sandbox/remote_guest/folder_sync.py",
            "_write_entry",
        ),  # a file of a sandbox's workspace, with its own mode
        (
            "kasmon/sandbox/shared/safe_tree.py",
            "_copy_folder",
        ),  # a fork's files, each with its own mode, in a folder 0700
        ("kasmon/sandbox/shared/snapshot_store.py", "_place"),  # a memory's files become 0600, whoever wrote them
        ("kasmon/sandbox/shared/snapshot_store.py", "_copy_file"),  # a copy of one, which becomes 0600 there
        (
            "kasmon/sandbox/shared/host_folders.py",
            "_make_passable",
        ),  # root's jails pass a folder of root's, and do no more
        ("kasmon/sandbox/shared/host_folders.py", "_make_readable"),  # what runs in every sandbox: anybody may read it
        (
            "kasmon/sandbox/shared/safe_tree.py",
            "_copy_file",
        ),  # a jail's copy of a file, 0600 or 0700, in a folder of ours
        (
            "kasmon/sandbox/shared/safe_tree.py",
            "_open_accessible",
        ),  # a folder of a jail's that is about to be removed, 0700
        ("kasmon/sandbox/microvm/program_disks.py", "_make"),  # copies of programs, which those inside read
        (
            "kasmon/sandbox/microvm/link/guest_init.py",
            "mount_programs",
        ),  # in the machine: a place for each of these to be seen at
        (
            "kasmon/sandbox/microvm/image.py",
            "_install_kernel",
        ),  # what every machine starts from, and its QEMU reads by itself
        ("kasmon/sandbox/microvm/image.py", "_install_programs"),  # likewise: the files of its disk
        ("kasmon/sandbox/microvm/link/folder_mirror.py", "apply_record"),  # a workspace's file, with its own mode
        ("kasmon/sandbox/microvm/link/folder_mirror.py", "_set"),  # likewise a folder's mode
        ("kasmon/sandbox/microvm/link/folder_mirror.py", "complete"),  # likewise
        ("kasmon/sandbox/microvm/link/guest_init.py", "handle_request"),  # inside a machine: the kernel's
        ("kasmon/sandbox/microvm/link/guest_init.py", "hello"),  # likewise
        ("kasmon/sandbox/microvm/boot.py", "remove_credentials"),  # a memory of ours, a secret's bytes in it
        ("kasmon/sandbox/microvm/debian_packages.py", "_put"),  # a package's file, with its own mode, for a disk
        ("kasmon/sandbox/microvm/warm_pool.py", "make"),  # an empty disk, in a folder of ours
        ("kasmon/sandbox/microvm/boot.py", "write_memory"),  # a memory, 0600, handed to QEMU open
        ("kasmon/bench/dashboard/loop_lag.py", "_probe"),  # the bench's own
        ("kasmon/bench/machines.py", "_measure_load"),  # likewise
    }
)
"""Where a file may be written, by module and function."""


@cache
def functions(tree: ast.Module) -> dict[ast.AST, str]:
    """The name of the innermost function that each call stands in, and each function's arguments."""
    enclosing: dict[ast.AST, str] = {}

    def go(node: ast.AST, name: str) -> None:
        if isinstance(node, ast.Call | ast.arguments):
            enclosing[node] = name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        for child in ast.iter_child_nodes(node):
            go(child, name)

    go(tree, "")
    return enclosing


@cache
def calls(tree: ast.Module) -> tuple[tuple[ast.Call, str], ...]:
    """Every call, with the last part of what is called."""
    return tuple(
        (node, node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
        for node in nodes(tree)
        if isinstance(node, ast.Call)
    )


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword_node.value for keyword_node in call.keywords if keyword_node.arg == name), None)


def is_ours(text: ast.expr | None) -> bool:
    """Whether *text* is a literal, or wrapped so that nothing in it is markup."""
    if text is None or isinstance(text, ast.Constant):
        return True
    if isinstance(text, ast.Call):
        called = text.func
        name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        return name in ("Content", "Text", "escape", "literal")
    return isinstance(text, ast.IfExp) and is_ours(text.body) and is_ours(text.orelse)


def wrapped(tree: ast.Module) -> set[str]:
    """The names that are only ever given to something wrapped: `quiet = Content(text)`."""
    given = [
        (target.id, node.value)
        for node in nodes(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return {name for name, _ in given} - {name for name, value in given if not is_ours(value)}


def is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def of_inputs(tree: ast.Module) -> set[ast.AST]:
    """Everything within classes that are an `Input`: its placeholder is plain text, other widgets' are markup."""
    inputs = [
        node
        for node in nodes(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) in ("Input", "LineBox") for base in node.bases)
    ]
    return {node for each in inputs for node in nodes(each)}


def no_foreign_markup(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Foreign text never reaches what reads markup: it would act when clicked, or end the dashboard."""
    plain, safe = of_inputs(tree), wrapped(tree)
    for call, name in calls(tree):
        texts = (*call.args[:1], keyword(call, "content"), keyword(call, "label"))
        if name in MARKUP_WIDGETS and not is_false(keyword(call, "markup")) and not all(map(is_ours, texts)):
            yield Finding(call.lineno, f"{name}(...) reads markup: give it Content(...), and markup=False")
        of_apprise = (
            path.endswith("/push_sender.py") and keyword(call, "body_format") is not None
        )  # whose text is plain
        if name == "notify" and not of_apprise and not is_false(keyword(call, "markup")):
            yield Finding(call.lineno, "notify(...) reads markup: markup=False")
        if name in ("from_markup", "from_text") and not isinstance(call.args[0] if call.args else None, ast.Constant):
            yield Finding(call.lineno, f"{name}(...) of what is no literal")
        value = keyword(call, "markup")
        if isinstance(value, ast.Constant) and value.value is True:
            yield Finding(call.lineno, "markup=True")
        for keyword_node in call.keywords:
            known = isinstance(keyword_node.value, ast.Name) and keyword_node.value.id in safe
            of_cli = keyword_node.arg == "help" and path.startswith("kasmon/cli/")  # cyclopts, whose help is plain text
            if (
                keyword_node.arg in MARKUP_WORDS
                and not of_cli
                and call not in plain
                and not known
                and not is_ours(keyword_node.value)
            ):
                yield Finding(call.lineno, f"{keyword_node.arg}= reads markup: give it Content(...)")
    for node in nodes(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr in MARKUP_WORDS and not is_ours(node.value):
                    yield Finding(node.lineno, f".{target.attr} reads markup: give it Content(...)")


def no_shell(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Nothing is run by a shell that could read more into it."""
    for call, name in calls(tree):
        wanted = keyword(call, "shell")
        if wanted is not None and not is_false(wanted) and (name in STARTERS or not isinstance(wanted, ast.Name)):
            yield Finding(call.lineno, "shell=")
        if name in ("create_subprocess_shell", "getoutput", "getstatusoutput", "popen"):
            yield Finding(call.lineno, f"{name}(...) runs a shell")
        if ast.unparse(call.func) in ("os.system", "eval", "exec"):
            yield Finding(call.lineno, f"{ast.unparse(call.func)}(...)")


def no_tmux_elsewhere(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Only `kasmon/tmux` words a tmux command; launch.py announces a pane with one, and knows nothing of kasmon.

    The bench starts another program as its own documents say: in a tmux session.
    """
    if path.startswith("kasmon/tmux/"):
        return
    allowed = {"kasmon/launch.py": {"set-option"}, "kasmon/bench/peers.py": {"new-session"}}.get(path, set())
    for node in nodes(tree):
        parts = getattr(node, "elts", [])
        if isinstance(node, ast.Call) and not ast.unparse(node.func).endswith(("Error", "_await_answer")):  # for people
            parts = node.args
        literals = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        commands = {word for word in literals if word.partition(" ")[0] in TMUX_COMMANDS} - allowed
        if literals[:1] == ["tmux"] and any(word.startswith("-") for word in literals[1:]):
            commands.add("tmux")
        if commands and isinstance(node, ast.expr):
            yield Finding(node.lineno, f"a tmux command: {', '.join(sorted(commands))}")


def no_browser(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Nothing is opened in a browser: a link is foreign."""
    for node in nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and "webbrowser" in ast.unparse(node):
            yield Finding(node.lineno, "webbrowser")
    for call, name in calls(tree):
        if name in ("open_url", "deliver_binary", "deliver_text"):
            yield Finding(call.lineno, f"{name}(...)")


def one_database(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Every connection to SQLite is made, and made safe, in one function."""
    enclosing = functions(tree)
    for call, _ in calls(tree):
        if ast.unparse(call.func) == "sqlite3.connect" and (path, enclosing[call]) != (
            "kasmon/store/fleet_cache.py",
            "connect",
        ):
            yield Finding(call.lineno, "sqlite3.connect outside store/index.py: connect")


def no_careless_writing(tree: ast.Module, path: str) -> Iterator[Finding]:
    """What is kept is written whole and for nobody else: by `paths.write_private`, or where `WRITERS` says why not."""
    enclosing = functions(tree)
    for call, name in calls(tree):
        if writes(call, name) and (path, enclosing[call]) not in WRITERS:
            yield Finding(
                call.lineno, f"{ast.unparse(call.func)}(...) writes a file: paths.write_private does it safely"
            )


def writes(call: ast.Call, name: str) -> bool:
    if name in ("write_text", "write_bytes", "touch", "mkstemp", "NamedTemporaryFile"):
        return True
    called = ast.unparse(call.func)
    if called == "os.open":
        return any("O_CREAT" in ast.unparse(each) or "O_TRUNC" in ast.unparse(each) for each in call.args[1:2])
    if name == "open" and (called == "open" or isinstance(call.func, ast.Attribute)):
        modes = (
            [*call.args[1:2], keyword(call, "mode")] if called == "open" else [*call.args[:1], keyword(call, "mode")]
        )
        return any(
            isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) & set("wax+")
            for mode in modes
        )
    return False


def no_killing_by_name(tree: ast.Module, path: str) -> Iterator[Finding]:
    """A process is known by pid and start time, never by what it is called."""
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in BY_NAME:
            yield Finding(node.lineno, f"{node.value}: by name")


def no_open_permission(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Nothing that kasmon makes is open to others."""
    enclosing = functions(tree)
    for call, name in calls(tree):
        if name in ("mkdir", "makedirs") and path != "kasmon/paths.py" and (path, enclosing[call]) not in WRITERS:
            mode = keyword(call, "mode")
            if not (isinstance(mode, ast.Constant) and mode.value == 0o700):
                yield Finding(call.lineno, f"{name}(...) without mode=0o700")
        private = call.args and isinstance(call.args[-1], ast.Constant) and call.args[-1].value in (0o600, 0o700)
        if name in ("chmod", "fchmod") and not private and (path, enclosing[call]) not in WRITERS:
            yield Finding(call.lineno, f"{name}(...)")


def no_possessive_group(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Python before 3.11.5 matches them wrongly (python/cpython#106052); an atomic group does the same."""
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and POSSESSIVE_GROUP.search(node.value):
            yield Finding(node.lineno, "a possessive group: write (?>(?:...)*)")


LINTS: Final[tuple[Lint, ...]] = (
    no_foreign_markup,
    no_shell,
    no_tmux_elsewhere,
    no_browser,
    one_database,
    no_careless_writing,
    no_killing_by_name,
    no_open_permission,
    no_possessive_group,
)
