"""Notifications pushed to services on loopback, by the command and by the process that needs no dashboard."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from kasmon.config import load
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.paths import private_folder
from kasmon.store.machines import Machine, write_machine
from kasmon.store.request_links import RequestLinks
from kasmon.supervisor.notifications.notifier import Notifier
from kasmon.supervisor.notifications.presence import last_key_at, note_key
from kasmon.supervisor.request_links import announced_address
from kasmon.tui.gateway.operations import Operations
from tests.support.bus.two_command_lines import MACHINE, TwoCommandLines
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.sample_fleet import fleet, working
from tests.support.supervisor.push_server import PushServer
from tests.support.wait import until

pytestmark = pytest.mark.story


@pytest.fixture
def server() -> Iterator[PushServer]:
    server = PushServer()
    yield server
    server.close()


def write_config(kasmon: Cli, server: PushServer) -> None:
    """Two targets: a phone whose address is in a file, and a webhook for when the user is away."""
    secret = kasmon.home / "phone"
    secret.write_text(server.ntfy)
    secret.chmod(0o600)
    kasmon.paths.config.mkdir(exist_ok=True)
    kasmon.paths.config_file.write_text(
        f'[notify.targets.phone]\nurl_file = "{secret}"\nwhen = "always"\n'
        f'[notify.targets.hook]\nurl = "{server.webhook}"\n'
    )
    kasmon.paths.config_file.chmod(0o600)


def notifier_of(kasmon: Cli) -> int | None:
    return lock_holder(kasmon.paths.notifier_lock)


def test_a_request_is_pushed_once_without_a_dashboard_also_if_the_process_is_killed(
    kasmon: Cli, server: PushServer
) -> None:
    write_config(kasmon, server)
    text = kasmon.paths.config_file.read_text()
    kasmon.paths.config_file.write_text(text.replace("url_file = ", 'url_env = "PHONE" # '))
    kasmon.environment["PHONE"] = server.ntfy
    first = kasmon.new("worker", "ask git push\nsay done")
    until(lambda: len(server.messages) == 2, what="a message to both targets")
    assert ["worker has a request\nBash git push"] * 2 == [message.text for message in server.messages]
    pid = until(lambda: notifier_of(kasmon))
    assert "verysecret" not in str(psutil.Process(pid).environ()), "every process of the user could read it"
    until(lambda: (kasmon.paths.notifications / "sent.json").read_text().count(first) == 2)

    os.kill(pid, signal.SIGKILL)
    until(lambda: notifier_of(kasmon) is None)
    note_key(kasmon.paths, kasmon.paths.config_file.stat().st_mtime + 3600)  # from now on the user is at the desk
    kasmon.new("second", "ask make\nsay done")
    until(lambda: len(server.messages) == 3, what="the second request")
    assert ("second has a request\nBash make", "private-topic") == (
        server.messages[2].text,
        server.messages[2].content["topic"],
    )
    assert notifier_of(kasmon) not in (None, pid)

    for request in kasmon.json("inbox")["requests"]:
        kasmon.json("answer", request["id"], "allow", "--digest", request["digest"])
    kasmon.json("wait", first, "--for", "idle", "--timeout", "60")
    assert 3 == len(server.messages)
    assert_is_secret(kasmon)


def test_a_locked_screen_is_away_and_a_second_target_gets_requests_unanswered_for_ten_minutes(
    kasmon: Cli, server: PushServer
) -> None:
    """In this process, whose clock the test sets, as is the lock; it ends when the config has no targets.

    A message has a link to its request while `kasmon web` runs, unless its target says otherwise.
    """
    write_config(kasmon, server)
    with kasmon.paths.config_file.open("a") as file:
        file.write(f'[notify.targets.pager]\nurl = "{server.pager}"\nwhen = "always"\n')
        file.write("escalate_after_minutes = 10\nlink = false\n")
    ahead_s = 0.0
    private_folder(kasmon.paths.notifications)
    alone = HostLock(kasmon.paths.notifier_lock)
    assert alone.acquire(), "the start of a session must start no other process"
    note_key(kasmon.paths, time.time() + 86400)
    notifier = Notifier(kasmon.paths, clock=lambda: time.time() + ahead_s, is_locked=lambda: True)
    thread = threading.Thread(target=lambda: asyncio.run(notifier.run()))
    web = announced_address(kasmon.paths, "http://127.0.0.1:8000")
    try:
        assert web.__enter__()
        session = kasmon.new("worker", "ask git push\nsay done")
        thread.start()
        until(lambda: len(server.messages) == 2, what="the messages to the phone and for when the user is away")
        ahead_s = 601.0
        until(lambda: len(server.messages) == 3, what="the escalation")
        first, second, last = (message.path for message in server.messages)
        assert ({"/", "/hook/verysecret"}, "/pager/verysecret") == ({first, second}, last)
        lines = [message.content["message"].splitlines() for message in server.messages]
        assert [["Bash git push"]] * 3 == [line[:1] for line in lines]
        prefix = "http://127.0.0.1:8000/r/"
        assert [True, True] == [line[1].startswith(prefix) for line in lines[:2]]
        assert [] == lines[2][1:]
        found = RequestLinks(kasmon.paths).find(lines[0][1].removeprefix(prefix))
        assert found is not None
        assert session == found.session
    finally:
        kasmon.paths.config_file.write_text("")
        thread.join(60)
        web.__exit__(None, None, None)
        alone.let_go()
    assert not thread.is_alive()


def test_a_dashboard_with_a_session_starts_the_process_once_and_reports_the_user_as_present(
    kasmon: Cli, server: PushServer
) -> None:
    write_config(kasmon, server)
    operations = Operations(kasmon.paths, lambda: load(kasmon.paths), lambda: fleet(working("x")))
    asyncio.run(operations.maintain_notifier(60.0))
    pid = until(lambda: notifier_of(kasmon))
    assert 50 < time.time() - last_key_at(kasmon.paths) < 600

    asyncio.run(operations.maintain_notifier(0.0))
    assert pid == notifier_of(kasmon)


def assert_is_secret(kasmon: Cli) -> None:
    """No file but the two that the user wrote has the secret of an address, and no command shows it."""
    written = [kasmon.paths.config_file, kasmon.home / "phone"]
    holding = [
        path
        for path in kasmon.home.rglob("*")
        if path.is_file() and path not in written and b"verysecret" in path.read_bytes()
    ]
    assert [] == holding
    for command in (
        ("config",),
        ("config", "--json"),
        ("config", "notify.targets"),
        ("config", "notify.targets.hook.url"),
        ("config", "--explain", "notify.targets.hook.url"),
        ("doctor",),
        ("doctor", "--json"),
    ):
        done = kasmon(*command)
        assert "verysecret" not in done.out + done.err, command
    assert "⟨hidden⟩" == json.loads(kasmon("config", "notify.targets.hook.url").out)


def test_a_test_message_goes_to_all_targets_or_one_and_its_receipt_shows_the_result(
    kasmon: Cli, server: PushServer
) -> None:
    nothing = kasmon("notify", "test")
    assert (3, True) == (nothing.code, "[notify.targets.NAME]" in nothing.err)
    write_config(kasmon, server)

    receipts = kasmon.json("notify", "test")["receipts"]
    assert [("phone", "ntfy", "sent", None), ("hook", "JSON", "sent", None)] == [
        (each["target"], each["service"], each["state"], each["why"]) for each in receipts
    ]
    assert {"private-topic", None} == {message.content.get("topic") for message in server.messages}

    server.status = 403
    failed = kasmon("notify", "test", "phone")
    assert (69, "phone (ntfy): not sent: it answered 403 (Forbidden)\n") == (failed.code, failed.out)
    unknown = kasmon("notify", "test", "pager")
    assert (3, True) == (unknown.code, "Targets of the config: 'phone', 'hook'." in unknown.err)


def test_doctor_shows_which_target_cannot_work(kasmon: Cli, server: PushServer) -> None:
    write_config(kasmon, server)
    (kasmon.home / "phone").chmod(0o644)
    kasmon.paths.config_file.chmod(0o644)
    [check] = [each for each in kasmon("doctor", "--json").json["checks"] if each["id"] == "notifications"]

    assert "warn" == check["level"]
    assert "others may read the file" in check["text"]
    assert "config.toml', which contains the address" in check["text"]


def test_an_address_in_an_invalid_config_is_not_shown(kasmon: Cli) -> None:
    kasmon.paths.config.mkdir(exist_ok=True)
    for text, why in (
        ('[notify.targets.phone]\nurl = ["ntfy://verysecret"]', "notify.targets.phone.url"),
        ('[notify.targets]\nphone = "ntfy://verysecret"', "notify.targets.phone"),
        ('[notify.targets.phone]\nurl = "ntfy://verysecret"\ntopic = "x"', "unknown setting"),
        ('[notify.targets.phone]\nquiet_hours = "10pm-7am"', "a text like '22:00-07:00'"),
    ):
        kasmon.paths.config_file.write_text(text)
        done = kasmon("config")
        assert (2, True, False) == (done.code, why in done.err, "verysecret" in done.err), done.err


def test_of_two_records_written_at_the_same_time_the_newest_stays(kasmon: Cli) -> None:
    """Else a process that is killed then would push a message again."""
    private_folder(kasmon.paths.notifications)
    notifier = Notifier(kasmon.paths)
    with notifier._writing:
        writer = threading.Thread(target=notifier._write_status)
        writer.start()
        notifier._delivered["phone"] = {"a request": 1.0}
    writer.join()

    assert "a request" in (kasmon.paths.notifications / "sent.json").read_text()


def test_a_request_of_another_machine_is_pushed_with_its_name_and_not_after_its_answer(
    fork_server: ForkServer, server: PushServer
) -> None:
    joined = TwoCommandLines(fork_server)
    try:
        write_config(joined.here, server)
        text = joined.here.paths.config_file.read_text()
        joined.here.paths.config_file.write_text(text.replace("\n[", '\nevents = ["asking", "machine"]\n[', 1))
        words = ("--agent", "scripted", "--mode", "sdk", "--prompt", "ask git push\nsay done")
        started = joined.here("new", "worker", "--on", MACHINE, *words)
        assert started.code == 0, started.err
        until(lambda: len(server.messages) == 2, what="a message to both targets")
        assert [f"{MACHINE}:worker has a request\nBash git push"] * 2 == [each.text for each in server.messages]

        request = joined.here.request()
        joined.here.json("answer", request["id"], "allow", "--digest", request["digest"])
        joined.here.json("wait", request["session"], "--for", "idle", "--timeout", "60")
        write_machine(joined.here.paths, Machine(name=MACHINE, command=("false",)))
        for process in psutil.Process(joined.link).children(recursive=True):
            process.kill()
        until(lambda: len(server.messages) == 3, what="a message about the machine")
        assert f"{MACHINE} is unreachable" == server.messages[2].content["title"]
    finally:
        joined.close()
