"""`kasmon trust`: show what a folder's own config would change, and apply it once the user trusts it."""

import hmac
import os
import sys
import time
from pathlib import Path
from typing import Annotated

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import accepts, note, print_answer, print_json, say
from kasmon.config import load
from kasmon.config.folder_config import NAME, FolderConfig, read_folder_config
from kasmon.config.folder_config_text import describe_changes
from kasmon.errors import NotFoundError, RefusedError, UsageError
from kasmon.host.rpc.peer import evidence
from kasmon.paths import expanded, user_paths
from kasmon.sanitize import visible
from kasmon.store.trusted_folders import TrustedContent, TrustedFolders


def trust(
    folder: Annotated[str, Arg("Folder whose repository contains a .kasmon.toml.")] = "",
    /,
    *,
    yes: Annotated[bool, Arg("Agree without a prompt; requires --digest.")] = False,
    digest: Annotated[str, Arg("Digest of the config that you reviewed.")] = "",
    list_: Annotated[bool, Arg(flags=("--list",), help="List trusted folders.")] = False,
    remove: Annotated[bool, Arg("Revoke trust.")] = False,
    wants_json: Json = False,
) -> None:
    """Review and trust a project's .kasmon.toml."""
    if list_ and (folder or yes or digest or remove):
        raise UsageError(
            "--list cannot be combined with a folder or another option.", hint="Run `kasmon trust --list`."
        )
    if list_:
        return show_all(wants_json=wants_json)
    if not folder:
        raise UsageError("`kasmon trust` requires a folder.", hint="Run `kasmon trust .` or `kasmon trust --list`.")
    if remove:
        return withdraw(folder, wants_json=wants_json)
    where = user_paths()
    local = _find_config(folder)
    lines = describe_changes(load(where), local) or ("It has no effect.",)
    counts = TrustedFolders(where).counts(local)
    if not counts:
        _check_person(local)
        if not wants_json:
            _show(local, lines)
        _agree(local, digest, agrees=yes, wants_json=wants_json)
        TrustedFolders(where).add(local, time.time())
    if wants_json:
        print_json(folder=local.root, file=local.file, digest=local.digest, would=list(lines), was_trusted=counts)
    else:
        say(f"{local.file}: trusted{' already' if counts else ', as it is now'}")
    return None


def show_all(*, wants_json: bool) -> None:
    """Print what is trusted, and whether the current content still is."""
    found = [(trusted, _now(trusted)) for trusted in TrustedFolders(user_paths()).read()]
    if wants_json:
        objects = [
            {"folder": one.root, "digest": one.digest, "trusted_at": one.at, "now": state} for one, state in found
        ]
        print_json(trusted=objects)
    elif found:
        say(*(f"{one.root}  {state}" for one, state in found))
    else:
        say("No trusted folders.")


def withdraw(folder: str, *, wants_json: bool) -> None:
    """Revoke the trust in the config of *folder*; name a removed folder as `--list` does.

    Raises:
        NotFoundError: if it was not trusted.
        RefusedError: if an agent calls it.
    """
    from kasmon.supervisor.limits.agents import check_is_person  # only where something is changed

    where, path = user_paths(), expanded(folder).absolute()
    check_is_person(where, "revoke trust")
    local = read_folder_config(path)
    root = local.root if local is not None else str(path)
    TrustedFolders(where).remove(root)
    print_answer(f"{root}: trust revoked", wants_json=wants_json, folder=root)


def _find_config(folder: str) -> FolderConfig:
    path = expanded(folder).absolute()
    if not path.is_dir():
        raise UsageError(f"the folder {str(path)!r} {'is not a folder' if path.exists() else 'does not exist'}.")
    local = read_folder_config(path)
    if local is None:
        raise NotFoundError(f"there is no {NAME} in {str(path)!r}, nor at the root of its repository.")
    if local.is_linked:
        raise UsageError(f"{str(path)!r} contains a symbolic link.", hint=f"Run `kasmon trust {local.root}`.")
    if local.fault:
        raise RefusedError(f"{local.file!r} is not trusted: {local.fault}.")
    return local


def _check_person(local: FolderConfig) -> None:
    """Check that a person calls this. Raises `RefusedError` if an agent calls, as far as detectable."""
    if evidence(os.getpid()):
        raise RefusedError(
            f"{local.file!r} was not trusted: an agent cannot grant trust.",
            hint="Run `kasmon trust` in your own terminal.",
        )


def _show(local: FolderConfig, lines: tuple[str, ...]) -> None:
    shown = [visible(line).replace("\n", "␤") for line in lines]
    say(f"{local.file} would change these settings in {local.root}:", *(f"  {line}" for line in shown))
    say(f"Its digest is {local.digest}.")


def _agree(local: FolderConfig, digest: str, *, agrees: bool, wants_json: bool) -> None:
    """Return if the user agrees to exactly this content. Raises `RefusedError` otherwise."""
    if digest and not hmac.compare_digest(digest.encode(), local.digest.encode()):
        raise RefusedError(
            f"{local.file!r} was not trusted: it has changed since you reviewed it.",
            hint="Review it again: its digest differs.",
        )
    if digest and agrees:
        return
    if wants_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RefusedError(
            f"{local.file!r} was not trusted: there is no terminal to ask on.",
            hint="Review it without --json, then pass --yes --digest with the digest that it shows.",
        )
    note("you are asked again when the file changes, and for each worktree or copy")
    if not accepts("Trust it?", sys.stdout):
        raise RefusedError(f"{local.file!r} was not trusted.")


def _now(trusted: TrustedContent) -> str:
    local = read_folder_config(Path(trusted.root))
    if local is None or local.root != trusted.root:
        return "gone"
    return "counts" if trusted.is_of(local) else "changed since, so it is ignored"
