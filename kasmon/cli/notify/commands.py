"""`kasmon notify`: send a test message to the targets of the config."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.cli.output.console import print_answer
from kasmon.config import NotifyTarget, load
from kasmon.errors import KasmonError, NotFoundError, UnavailableError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.formatting import clock
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.notifications.alerts import Alert
from kasmon.supervisor.notifications.notifier import read_status, start_notifier
from kasmon.supervisor.notifications.push_sender import PushReceipt, is_installed, read_address, send

TEST: Final = Alert(kind="test", title="kasmon test", text="Notifications of kasmon reach this device.", sessions=())


def send_test(
    target: Annotated[str | None, Arg(help="Name of a target; all of them without it.")] = None,
    /,
    *,
    wants_json: Json = False,
) -> int:
    """Send a test message to the targets of [notify.targets], or to one of them, and print what became of each.

    It is sent at once: neither quiet hours nor `when` delay it. The exit code is 69 if a message was not sent.
    """
    where = user_paths()
    targets = load(where).notify.targets
    if target is not None and target not in targets:
        names = ", ".join(map(repr, targets)) or "none"
        raise NotFoundError(f"there is no target {target!r}.", hint=f"Targets of the config: {names}.")
    if not targets:
        raise NotFoundError(
            "the config has no [notify.targets.NAME].", hint="docs/notifications.md shows how to write one."
        )
    chosen = targets if target is None else {target: targets[target]}
    with ThreadPoolExecutor(len(chosen)) as pool:  # a slow service delays no other
        receipts = list(pool.map(lambda name: _send(where, name, chosen[name]), chosen))
    with contextlib.suppress(KasmonError):
        start_notifier(where)  # sessions may run already, and nothing else may start it for them
    print_answer(*map(_line, receipts), wants_json=wants_json, receipts=[_object(each) for each in receipts])
    return 0 if all(each.is_sent for each in receipts) else UnavailableError.exit_code


def _send(where: Paths, name: str, target: NotifyTarget) -> PushReceipt:
    try:
        return send(name, read_address(where, name, target), TEST)
    except KasmonError as error:
        return PushReceipt(target=name, service="", is_sent=False, why=str(error))


def _object(receipt: PushReceipt) -> dict[str, object]:
    return {
        "target": receipt.target,
        "service": receipt.service or None,
        "state": "sent" if receipt.is_sent else "failed",
        "why": receipt.why or None,
        "took_ms": receipt.took_ms,
    }


def _line(receipt: PushReceipt) -> str:
    service = f" ({receipt.service})" if receipt.service else ""
    outcome = f"sent in {receipt.took_ms} ms" if receipt.is_sent else f"not sent: {receipt.why}"
    return f"{receipt.target}{service}: {outcome}"


def check_notifications(where: Paths) -> DoctorCheck:
    """Check the targets of the config, without sending anything."""
    try:
        targets = load(where).notify.targets
    except KasmonError:
        targets = {}  # another check reports it
    if not targets:
        return DoctorCheck("notifications", "ok", "no targets for notifications", is_info=True)
    if not is_installed():
        return DoctorCheck(
            "notifications",
            "fail",
            "nothing is pushed: apprise is not installed",
            fix="`pipx install --force '.[push]'` in kasmon's clone",
        )
    problems, status = [], read_status(where)
    for name, target in targets.items():
        try:
            read_address(where, name, target)
        except KasmonError as error:
            problems.append(error.message)
        else:
            last = status.targets.get(name)
            if last is not None and last.why:
                problems.append(f"cannot push to {name!r} since {clock(last.failed_at, day=True)}: {last.why}")
    if any(target.url for target in targets.values()) and where.config_file.stat().st_mode & 0o077:
        problems.append(f"others may read {str(where.config_file)!r}, which contains the address of a target")
    names = dict.fromkeys(targets, "⟨target⟩")
    if problems:
        fix = "Correct it in the config, then run `kasmon notify test`."
        return DoctorCheck("notifications", "warn", "; ".join(problems), fix=fix, private=names)
    runs = "runs" if lock_holder(where.notifier_lock) is not None else "starts with the next session"
    text = f"{len(targets)} {'target' if len(targets) == 1 else 'targets'} for notifications; the notifier {runs}"
    return DoctorCheck("notifications", "ok", text)
