"""Messages to services on loopback, and what becomes of the secrets in their addresses."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.config import NotifyTarget
from kasmon.errors import ConfigError
from kasmon.host.journal.known_secrets import hidden
from kasmon.paths import user_paths
from kasmon.supervisor.notifications.alerts import Alert
from kasmon.supervisor.notifications.push_sender import read_address, send
from tests.support.supervisor.push_server import PushServer

ALERT = Alert(kind="asking", title="docs has a request", text="Bash echo <!channel> @everyone & `id`", sessions=())


@pytest.fixture
def server() -> Iterator[PushServer]:
    server = PushServer()
    yield server
    server.close()


def test_ntfy_and_a_webhook_get_name_line_and_link_and_nothing_in_them_is_markup(server: PushServer) -> None:
    for address, service in ((server.ntfy, "ntfy"), (server.webhook, "JSON")):
        receipt = send("phone", address, ALERT, "https://kasmon.example/r/1")
        assert (True, service, "") == (receipt.is_sent, receipt.service, receipt.why)
    ntfy, hook = server.messages

    text = "docs has a request\nBash echo ‹!channel› \uff20everyone + 'id'\nhttps://kasmon.example/r/1"
    assert [text, text] == [ntfy.text, hook.text]
    assert ("private-topic", "Bearer tk_verysecret") == (ntfy.content["topic"], ntfy.authorization)
    assert "/hook/verysecret" == hook.path
    assert "github" not in str(ntfy.content), "a phone would load an image from another server"


@pytest.mark.parametrize(
    ("status", "why"), [(403, "it answered 403 (Forbidden)"), (429, "it answered 429 (Too Many Requests)")]
)
def test_a_refusal_is_reported_by_its_status_without_any_text_of_the_service(
    server: PushServer, status: int, why: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server.status = status
    with caplog.at_level(logging.DEBUG):
        for address in (server.ntfy, server.webhook):
            receipt = send("phone", address, ALERT)
            assert (False, why) == (receipt.is_sent, receipt.why)

    said = caplog.text + "".join(capfd.readouterr()) + str(receipt)
    assert ("verysecret" in said, "private-topic" in said) == (False, False)


def test_a_missing_service_is_reported(server: PushServer) -> None:
    address = server.ntfy
    server.close()

    assert "it refused the connection" == send("phone", address, ALERT).why


def test_an_address_of_no_service_is_refused_without_being_shown() -> None:
    receipt = send("phone", "nosuch://tk_verysecret@example", ALERT)

    assert not receipt.is_sent
    assert "apprise knows no service with such an address" in receipt.why
    assert "verysecret" not in receipt.why


def test_an_address_comes_from_the_config_a_private_file_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "phone"
    file.write_text("ntfy://127.0.0.1/in-a-file\nmore\n")
    file.chmod(0o600)
    where, variables = user_paths(), {"PHONE": "ntfy://127.0.0.1/in-a-variable"}
    found = [
        read_address(where, "phone", target, variables)
        for target in (
            NotifyTarget(url="ntfy://127.0.0.1/in-the-config"),
            NotifyTarget(url_file=str(file)),
            NotifyTarget(url_env="PHONE"),
        )
    ]
    assert [f"ntfy://127.0.0.1/in-{place}" for place in ("the-config", "a-file", "a-variable")] == found
    assert "in-a-file" not in hidden(f"a line of a log with {found[1]}")

    file.chmod(0o640)
    with pytest.raises(ConfigError, match="others may read the file") as refused:
        read_address(where, "phone", NotifyTarget(url_file=str(file)))
    assert f"chmod 600 {file}" in refused.value.hint


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (NotifyTarget(), "exactly one of url, url_file and url_env"),
        (NotifyTarget(url="a://b", url_env="B"), "exactly one of url, url_file and url_env"),
        (NotifyTarget(url_env="NOT_SET"), "the variable 'NOT_SET' is not set"),
        (NotifyTarget(url_file="/nowhere/phone"), "'/nowhere/phone' cannot be read"),
    ],
)
def test_a_target_without_an_address_reports_what_is_missing(target: NotifyTarget, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_address(user_paths(), "phone", target, {})


def test_apprise_is_loaded_only_when_something_is_sent() -> None:
    code = (
        "import sys, kasmon.cli.notify.commands, kasmon.supervisor.notifications.notifier; "
        "sys.exit(any(name in sys.modules for name in ('apprise', 'requests', 'yaml')))"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
