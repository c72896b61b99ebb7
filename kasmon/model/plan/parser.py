"""Parse a plan's file, in any of its formats."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from kasmon.errors import PlanFaultyError
from kasmon.model.plan import markdown, toml
from kasmon.model.plan.placement import with_default_machine
from kasmon.model.plan.plan import Plan, PlanFault, describe_fault
from kasmon.model.plan.validation import validate

SUFFIXES: Final = (".md", ".markdown", ".toml")
MARKS: Final = re.compile(r"^(## +Wave\b|\s*\[\[\s*task\s*\]\])", re.MULTILINE)
"""Marks of a plan file; a README beside it has neither."""


def is_plan(file: str) -> bool:
    return PurePath(file).suffix.lower() in SUFFIXES


def parse_for_display(
    text: str, file: str, agents: Sequence[str] | None = None, on: str = ""
) -> tuple[Plan, tuple[PlanFault, ...]]:
    """Return the plan in *text* and all its faults; a plan with faults is only for display.

    Args:
        text: the file's content.
        file: its name: `.toml` is TOML, everything else Markdown.
        agents: the existing profiles; None if unknown.
        on: the machine of tasks that name none, as `with_default_machine` takes it.
    """
    stem = PurePath(file).stem or "plan"
    if not text.strip():
        return Plan(name=stem), (PlanFault(line=0, why="it is empty"),)
    is_toml = PurePath(file).suffix.lower() == ".toml"
    draft = (toml if is_toml else markdown).read(text, stem)
    return validate(draft._replace(plan=with_default_machine(draft.plan, on)), agents)


def read(text: str, file: str, agents: Sequence[str] | None = None, on: str = "") -> Plan:
    """Return the plan in *text*. Raises `PlanFaultyError` if it has faults; it names each with its line."""
    plan, faults = parse_for_display(text, file, agents, on)
    if faults:
        raise PlanFaultyError([describe_fault(file, fault) for fault in faults])
    return plan
