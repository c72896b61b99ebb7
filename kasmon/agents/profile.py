"""The schema of `profile.toml`: what kasmon knows of an agent beside its screens. Every key may be left out.

title = "Claude Code"                   # its name in texts
also = ["claude-code"]                  # other names of its program, such as that of its npm package
tried = "2.1.332"                       # the version that it was tried with
interrupt = "escape"                    # the key that ends a turn in its terminal

[start]                                 # its arguments
model = "--model"
resume = ["--resume", "{id}"]

[sandbox.hosts]                         # what its sandbox may reach, and why
"api.anthropic.com:443" = "the model"
"""

import re
from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kasmon.errors import ConfigError
from kasmon.toml_struct import fault, parse_struct

LARGEST: Final = 64 * 1024
"""The greatest size of a profile, in bytes."""
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
"""The name of a program, and so of its folder."""
BOUND: Final = r"(>=|<=|==|>|<) ?\d{1,9}(\.\d{1,9}){0,3}"
"""A bound of a range of versions."""
ID: Final = "{id}"
"""Stands for the conversation's id in `start.resume`."""

Sentence: TypeAlias = Annotated[str, msgspec.Meta(max_length=300)]
Line: TypeAlias = Annotated[str, msgspec.Meta(max_length=200, pattern=r"\A[^\x00-\x1f\x7f]*\Z")]
Lines: TypeAlias = Annotated[tuple[Line, ...], msgspec.Meta(max_length=40)]
Variable: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[A-Z][A-Z0-9_]{2,79}\Z")]
Variables: TypeAlias = Annotated[tuple[Variable, ...], msgspec.Meta(max_length=80)]
EntryReasons: TypeAlias = dict[Line, Sentence]
"""What is granted or refused -> why."""


class Quirk(StrEnum):
    """A behaviour of an agent that the Agent Client Protocol does not specify."""

    COMMAND_AS_TITLE = "command as title"
    """A shell call has no input; its title is the whole command, its text the folder and a description."""
    NAMED_CALLS = "named calls"
    """The id of a call begins with its tool's name."""
    MODE_IN_TEXT = "mode in text"
    """A mode change is reported as a message of the agent."""
    QUOTA = "quota"
    """The usage of a turn is in the answer's `_meta.quota`."""
    LAST_CALL_ONLY = "last call only"
    """`usage` in an answer is that of the turn's last model call, so it gives no total."""
    TWIN_FILES = "twin files"
    """Resuming a conversation can destroy it: see `kasmon.backends.acp.gemini_quirks`."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that rejects unknown keys."""


class StartArguments(_Table, frozen=True):
    acp: Lines = ()
    """They start it with the Agent Client Protocol; empty if it does not have it."""
    terminal: Lines = ()
    """It always gets them in a terminal."""
    terminal_versions: Annotated[str, msgspec.Meta(max_length=80, pattern=rf"\A({BOUND}(, ?{BOUND})*)?\Z")] = ""
    """The versions that may run in a terminal, such as `>=1.2, <2`: of any other kasmon knows no screen, and starts it
    by its protocol only. Empty for all."""
    model: Line = ""
    """The flag before a model's name; empty if it has none."""
    resume: Lines = ()
    """They resume the conversation `{id}`: a flag goes to the end of its command line, a subcommand to the start. Empty
    if it cannot resume one."""
    bypass: Lines = ()
    """Its arguments that skip permission requests, beside those that mean this for any agent: `--flag`, or `--flag
    value`."""
    bypass_without: Lines | None = None
    """It skips permission requests unless it has one of these; empty if it never asks. Without this key it asks."""


class AgentVariables(_Table, frozen=True):
    own: Variables = ()
    """Name prefixes of its own variables: of the environment it gets these, and those that every program gets."""
    providers: bool = False
    """Whether it also gets the variables of all model providers."""
    structured: dict[Variable, Line] = {}
    """Variables that kasmon sets for its structured sessions."""
    config_folder: Annotated[str, msgspec.Meta(pattern=r"\A([A-Z][A-Z0-9_]{2,79})?\Z")] = ""
    """The variable that names the folder with its config, its log-in and its conversations."""


class LogIn(_Table, frozen=True):
    """How it is seen that the agent is logged in, without starting it. Without a `file` that is unknown."""

    how: Sentence = "Log in to it in a terminal, or pass its key with `--env`."
    """How the user logs in."""
    folder: Line = ""
    """The folder below the home folder with the next two files; the variable `folder_variable` replaces it."""
    folder_variable: Annotated[str, msgspec.Meta(pattern=r"\A([A-Z][A-Z0-9_]{2,79})?\Z")] = ""
    file: Line = ""
    """The file that exists after a log-in."""
    variables: Variables = ()
    """With one of these it needs no log-in."""
    settings: Line = ""
    """The file of its settings."""
    settings_words: Lines = ()
    """Lines in `settings` by which it may be logged in otherwise."""
    keychain: bool = False
    """Whether its log-in is in the keychain on macOS."""


class SandboxNeeds(_Table, frozen=True):
    """The least that it needs in a sandbox: `kasmon new` shows it, and the user approves it once."""

    hosts: EntryReasons = {}
    """The hosts without which it cannot work."""
    refused: EntryReasons = {}
    """The hosts that it contacts by itself and does not need: they are refused without a permission request."""
    log_in_files: EntryReasons = {}
    """Files below the home folder with its log-in. They are copied; it renews them, so they are copied back."""
    files: EntryReasons = {}
    """Further files below the home folder that are copied."""


class AgentEvidence(_Table, frozen=True):
    no_hooks: Sentence = ""
    """Why it gets no hooks that report its state."""
    no_status: Sentence = ""
    """Why it does not report its status to the terminal (OSC 7501)."""


class AgentProfile(_Table, frozen=True):
    """What is known of one agent."""

    name: str = ""
    """The name of its folder and of its program; not a key of the file."""
    title: Annotated[str, msgspec.Meta(max_length=60, pattern=r"\A[^\x00-\x1f\x7f]*\Z")] = ""
    also: Lines = ()
    tried: Annotated[str, msgspec.Meta(pattern=r"\A([0-9][\w.+-]{0,39})?\Z")] = ""
    """The version that it was tried with; empty if it was not."""
    update: Sentence = ""
    """How the user installs the latest version, as a sentence."""
    login_shell: bool = False
    """Whether it is no agent but the user's login shell."""
    interrupt: Literal["ctrl-c", "escape", "escape twice"] = "ctrl-c"
    """The key that ends its turn in a terminal. Ctrl+C ends some agents entirely."""
    start: StartArguments = StartArguments()
    variables: AgentVariables = AgentVariables()
    log_in: LogIn = LogIn()
    quirks: frozenset[Quirk] = frozenset()
    sandbox: SandboxNeeds = SandboxNeeds()
    evidence: AgentEvidence = AgentEvidence()


def parse(text: str, name: str, file: str) -> AgentProfile:
    """Return the profile *text* of the agent *name*; *file* appears only in errors.

    Raises:
        ConfigError: if it is not TOML, or has a key or a value that the schema does not know.
    """
    profile = parse_struct(text, file, AgentProfile)
    if profile.name:
        raise fault(text, file, ("name",), f"{profile.name!r} is not needed: the folder's name is the agent's name")
    for other in profile.also:
        if not NAME.fullmatch(other):
            raise fault(text, file, ("also",), f"{other!r} is not the name of a program")
    if profile.start.resume and not any(ID in word for word in profile.start.resume):
        why = f"{list(profile.start.resume)!r} does not contain {ID!r}, the place of the conversation's id"
        raise fault(text, file, ("start", "resume"), why)
    for key in ("log_in_files", "files"):
        for path in getattr(profile.sandbox, key):
            if not is_inside(path):
                raise fault(text, file, ("sandbox", key), f"{path!r} is not a path below the home folder")
    for key in ("folder", "file", "settings"):
        if (path := getattr(profile.log_in, key)) and not is_inside(path):
            raise fault(text, file, ("log_in", key), f"{path!r} is not a path below its folder")
    return msgspec.structs.replace(profile, name=name)


def is_inside(path: str) -> bool:
    """Whether the relative *path* names something below its folder."""
    return not path.startswith(("/", "~")) and not {"..", "", "."} & set(path.split("/"))


def check_name(name: str, file: str) -> None:
    """Raise `ConfigError` unless *name* is a name for a folder of an agent; *file* is that folder."""
    if not NAME.fullmatch(name):
        why = f"{name!r} is not the name of a program: up to 40 small letters, digits, _, . and -"
        raise ConfigError(file, why, hint="Give the folder the name of the agent's program.")
