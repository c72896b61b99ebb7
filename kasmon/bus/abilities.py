"""What the owner of a machine allows others: which ability each request, and each frame to a host, needs."""

from collections.abc import Collection, Sequence
from typing import Final

from kasmon.errors import RefusedError
from kasmon.host.rpc.control import ControlKind
from kasmon.host.rpc.frames import (
    Blur,
    DescribePane,
    ExecuteCommand,
    Focus,
    FromClient,
    Hello,
    Paste,
    ReadTerminal,
    RecordComment,
    ReportContext,
    Scroll,
    SendKeys,
    Unwatch,
    Watch,
)
from kasmon.model.commands import (
    Ability,
    Answer,
    Checkpoint,
    Configure,
    Continue,
    Interrupt,
    Pause,
    Prompt,
    Requeue,
    Restore,
    Resume,
    Run,
)

OTHERWISE: Final[Ability] = "start"
"""What everything needs that is not listed here: it is as much as an account on the machine."""
OF_FRAME: Final[dict[type[FromClient], Ability]] = {
    Watch: "see",
    Unwatch: "see",
    Scroll: "see",
    ReadTerminal: "see",
    ReportContext: "prompt",
    RecordComment: "prompt",
    Focus: "type",  # it sets the size of the terminal
    Blur: "see",
    SendKeys: "type",
    Paste: "type",
}
OF_COMMAND: Final[dict[type[object], Ability]] = {
    Prompt: "prompt",
    Requeue: "prompt",
    Interrupt: "prompt",
    Continue: "prompt",
    Answer: "answer",
    Configure: "answer",  # a permission mode answers all later requests
    Run: "sandbox",
    Pause: "sandbox",
    Resume: "sandbox",
    Checkpoint: "sandbox",
    Restore: "sandbox",
}
"""Not among them: a fork writes to a folder of the owner's, and a host that is allowed leads out of the sandbox."""
LOOKS: Final[dict[str, frozenset[str]]] = {
    "ls": frozenset(("--json", "--state", "--tag", "--wave", "--marks")),
    "show": frozenset(("--json",)),
    "read": frozenset(("--json", "--lines", "--range", "--ansi")),
    "inbox": frozenset(("--json",)),
    "explain": frozenset(("--json",)),
    "export": frozenset(("--json", "--format")),
    "diff": frozenset(("--json", "--turn", "--last", "--branch", "--stat")),
    "comments": frozenset(("--json",)),
    "hunks": frozenset(("--json", "--turn")),
    "rules": frozenset(("--json",)),
    "top": frozenset(("--json",)),
    "worktrees": frozenset(("--json",)),
    "plan": frozenset(("--json", "--wave")),
}
"""The commands that show something and change nothing, with the options with which that is so."""
ACTS: Final = frozenset(("comments", "hunks"))
"""Those of them that change something if they have more words than the session."""
LISTS: Final = frozenset(("rules", "worktrees"))
"""Those of them that change something with another word than `ls`."""
OF_PLAN: Final = frozenset(("ls", "show"))
"""The commands of `kasmon plan` among them."""
COMPLETED: Final = frozenset(("--files", "--symbols"))
"""The options of `show` for what is completed in prompts: names of files, and what their code defines."""
PROPOSAL: Final = frozenset(("--propose", "--actor", "--json"))
"""The options with which `finish` only logs that an agent proposes it."""
OF_WORD: Final[dict[str, Ability]] = {
    "send": "prompt",
    "interrupt": "prompt",
    "fg": "prompt",
    "comment": "prompt",
    "comments": "prompt",
    "mark": "prompt",
    "limits": "prompt",
    "answer": "answer",
}
"""The first word of other commands."""
OF_SANDBOX: Final = frozenset(("ls", "show", "run", "pause", "resume", "checkpoint", "checkpoints", "restore", "diff"))
"""The commands of `kasmon sandbox` that stay inside one. The others mount folders, widen its network, or remove it."""
DOES: Final[dict[Ability, str]] = {
    "see": "see its sessions",
    "prompt": "send prompts to its agents",
    "answer": "answer its agents' requests",
    "type": "type into its terminals",
    "start": "start and end its sessions, or run commands",
    "sandbox": "run code in its sandboxes",
}


def ability_of_frame(frame: FromClient) -> Ability | None:
    """Return what a client needs to send *frame* to a host; None if nothing."""
    match frame:
        case Hello():
            return None
        case ExecuteCommand():
            return OF_COMMAND.get(type(frame.command), OTHERWISE)
        case DescribePane():
            return "type" if frame.attaching else "see"  # who attaches wakes an agent in its sandbox
        case _:
            return OF_FRAME.get(type(frame), OTHERWISE)


def ability_of_control(kind: int) -> Ability:
    """Return what a client needs to send a control request to a host."""
    return "see" if kind == ControlKind.STATUS else OTHERWISE


def ability_of_arguments(arguments: Sequence[str]) -> Ability:
    """Return what a client needs to run `kasmon ARGUMENTS`."""
    command, *others = arguments or ("",)
    options = [each.partition("=")[0] for each in others if each.startswith("-")]
    if command == "show" and not COMPLETED.isdisjoint(options):
        return "prompt"
    values = [each for each in others if not each.startswith("-")]
    is_act = (
        (command in ACTS and len(values) > 1)
        or (command in LISTS and not {"ls"}.issuperset(values))
        or (command == "plan" and OF_PLAN.isdisjoint(others[:1]))
    )
    if command in LOOKS and LOOKS[command].issuperset(options) and not is_act:
        return "see"
    if command == "finish" and "--propose" in options and PROPOSAL.issuperset(options):
        return "prompt"
    if command == "sandbox" and others and others[0] in OF_SANDBOX:
        return "sandbox"
    return OF_WORD.get(command, OTHERWISE)


def check(ability: Ability | None, abilities: Collection[Ability]) -> None:
    """Raise `RefusedError` unless *abilities* include *ability*."""
    if ability is not None and ability not in abilities:
        allow = f"add {ability!r} to `allow` in the table [machine] of their config, and to --allow of your key"
        raise RefusedError(f"the owner of that machine does not let you {DOES[ability]}.", hint=f"They can {allow}.")
