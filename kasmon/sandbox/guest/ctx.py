"""The `kasmon` command inside a sandbox: only `kasmon ctx`, which shows the agent's context and writes notes.

It reads `context.json`, which the host keeps current, and appends notes for the host to an append-only file.
"""

import json
import os
import sys
import time

HERE = os.path.dirname(os.environ.get("KASMON_CONTEXT", "")) or "/opt/session"  # noqa: PTH120 (a small program: no pathlib)
USAGE = "usage: kasmon ctx [--done [WORD]] [--waiting REASON] [--json]"
LONGEST = 2000


def main(arguments: "list[str]") -> int:
    """Do as `kasmon ctx` does outside, as far as possible from inside."""
    if arguments[:1] != ["ctx"]:
        return _usage("only `kasmon ctx` is available in a sandbox")
    report, wants_json, rest = {}, False, arguments[1:]
    while rest:
        option = rest.pop(0)
        if option == "--json":
            wants_json = True
        elif option == "--done":
            report["done"] = rest.pop(0) if rest and not rest[0].startswith("--") else ""
        elif option == "--waiting" and rest:
            report["waiting"] = rest.pop(0)
        else:
            return _usage(f"unknown argument {option!r}")
    try:
        if report:
            note(report)
        with open(f"{HERE}/context.json", "rb") as file:  # noqa: PTH123 (a small program: no pathlib)
            context = json.load(file)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"kasmon: the context of this sandbox is not valid: {error}.\n")
        return 1
    sys.stdout.write(json.dumps(context) + "\n" if wants_json else words(context))
    return 0


def note(report: "dict[str, str]") -> None:
    """Write *report* as a note for the host. Raises `OSError` if it cannot be written."""
    line = {
        "at": time.time(),
        "generation": os.environ.get("KASMON_GENERATION", ""),
        "nonce": os.environ.get("KASMON_NONCE", ""),
        "event": "kasmon.ctx",
        **{name: text[:LONGEST] for name, text in report.items()},
    }
    file = os.open(f"{HERE}/hooks.jsonl", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def words(context: "dict[str, object]") -> str:
    """Return *context* as text for the user."""
    known = [name for name in ("task", "title", "wave", "plan", "notes") if context.get(name) not in (None, "")]
    lines = [f"{context.get('name', '')} ({context.get('id', '')}), in a sandbox"]
    lines += [f"  {name:<7} {context[name]}" for name in known]
    peers = context.get("peer_sessions")
    for peer in peers if isinstance(peers, list) else ():
        if isinstance(peer, dict):
            state = peer.get("state") or peer.get("task_state") or ""
            lines.append(f"  peer    {peer.get('name') or peer.get('title')}: {state}")
    return "\n".join(lines) + "\n"


def _usage(why: str) -> int:
    sys.stderr.write(f"kasmon: {why}.\n{USAGE}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
