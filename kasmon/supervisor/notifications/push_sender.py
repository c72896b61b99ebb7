"""Sends one message to one target of the config, such as ntfy on a phone, through apprise. Blocks: use a thread.

The address of a target is a secret. No text of apprise or of a service is passed on, as it may contain parts of it: a
failure is told in words of our own, from the kind of error and the HTTP status.
"""

import logging
import os
import re
import stat
import threading
import time
import warnings
from collections.abc import Mapping
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kasmon.config.schema import NotifyTarget
from kasmon.errors import ConfigError, UnavailableError
from kasmon.host.journal.known_secrets import add_secrets
from kasmon.paths import Paths, expanded, open_regular
from kasmon.supervisor.notifications.alerts import Alert

if TYPE_CHECKING:
    import apprise

LARGEST_BYTES: Final = 4096
"""The largest address."""
FOREIGN: Final = str.maketrans({"<": "‹", ">": "›", "&": "+", "@": "\uff20", "`": "'"})
"""Services parse these as markup, or as a mention of all members of a channel; the text of agents is neither."""
STATUS: Final = re.compile(r"error=(\d{3})\b")
CAUSES: Final = (
    ("timed out", "it did not answer in time"),
    ("refused", "it refused the connection"),
    ("certificate", "its certificate is not valid"),
    ("resol", "its host name is unknown"),
    ("name or service not known", "its host name is unknown"),
    ("unreachable", "its network is unreachable"),
    ("connection error", "it cannot be reached"),
)
"""A part of what the library logs -> what that means."""
LIBRARIES: Final = ("apprise", "urllib3", "requests", "requests_oauthlib")
WARNING_KINDS: Final = frozenset({"lost", "crashed", "stuck", "unsure", "limited", "machine"})

_loading = threading.Lock()


class PushReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one message."""

    target: str
    service: str
    """The kind of service (`ntfy`); empty if that is not known."""
    is_sent: bool
    why: str = ""
    took_ms: int = 0


def read_address(paths: Paths, name: str, target: NotifyTarget, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of *target*, which is a secret. Raises `ConfigError` unless it has one that is readable."""
    key = f"notify.targets.{name}"
    file = str(paths.config_file)
    if sum(map(bool, (target.url, target.url_file, target.url_env))) != 1:
        raise ConfigError(file, "it needs exactly one of url, url_file and url_env", key=key)
    if target.url_env:
        address = environment.get(target.url_env, "")
        missing = f"the variable {target.url_env!r} is not set where kasmon was started"
        key = f"{key}.url_env"
    elif target.url_file:
        key = f"{key}.url_file"
        address = _read_address_file(file, key, target.url_file)
        missing = f"the file {target.url_file!r} is empty"
    else:
        address, missing = target.url, ""
    address = address.strip().partition("\n")[0].strip()
    if not address:
        raise ConfigError(file, missing, key=key)
    add_secrets([address])
    return address


def _read_address_file(config_file: str, key: str, name: str) -> str:
    try:
        with os.fdopen(open_regular(expanded(name), os.O_RDONLY), "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                why = f"others may read the file {name!r}, which contains secrets"
                raise ConfigError(config_file, why, key=key, hint=f"Run `chmod 600 {name}`.")
            return file.read(LARGEST_BYTES).decode()
    except OSError as error:
        why = f"the file {name!r} cannot be read ({error.strerror or error})"
        raise ConfigError(config_file, why, key=key) from error
    except UnicodeDecodeError as error:
        raise ConfigError(config_file, f"the file {name!r} is not UTF-8", key=key) from error


def is_installed() -> bool:
    """Return whether apprise is installed; does not import it."""
    return find_spec("apprise") is not None


def open_service(name: str, address: str) -> "apprise.NotifyBase":
    """Return the service at *address*, of the target *name*. The first call loads apprise, which takes 2 s.

    Raises `UnavailableError` if apprise is not installed, or does not know such a service.
    """
    with _loading:
        for each in (*LIBRARIES, "imghdr"):  # their warnings contain hosts
            warnings.filterwarnings("ignore", module=rf"{each}\b")
        try:
            import apprise
        except ImportError as error:
            raise UnavailableError(
                f"cannot push to {name!r}: apprise is not installed.",
                hint="`pipx install --force '.[push]'` in kasmon's clone",
            ) from error
        for each in LIBRARIES:
            logging.getLogger(each).propagate = False  # they log addresses
        library = logging.getLogger("apprise")
        if not any(isinstance(handler, _LibraryLog) for handler in library.handlers):
            library.addHandler(_library_log)
        library.setLevel(logging.DEBUG)
        # Without an image: services and phones would load it from another server.
        asset = apprise.AppriseAsset(app_id="kasmon", app_desc="kasmon", image_url_mask="", image_url_logo="")
        try:
            service = apprise.Apprise.instantiate(address, asset=asset)
        except Exception:  # noqa: BLE001  # code of a hundred services; its text may contain the address
            service = None
    if not isinstance(service, apprise.NotifyBase):
        raise UnavailableError(
            f"cannot push to {name!r}: apprise knows no service with such an address.",
            hint="It must be an address as the documents of apprise list them, such as ntfys://ntfy.sh/TOPIC.",
        )
    return service


def send(name: str, address: str, news: Alert, link: str = "") -> PushReceipt:
    """Send *news* to the target *name* at *address*; a failure is in the receipt."""
    began, kind = time.monotonic(), ""
    try:
        service = open_service(name, address)
        kind = str(service.service_name)
        _library_log.begin()
        is_sent = bool(
            service.notify(
                body=body(news, link) or title(news),
                title=title(news),
                notify_type="warning" if news.kind in WARNING_KINDS else "info",
                body_format="text",
            )
        )
        why = "" if is_sent else _library_log.why()
    except UnavailableError as error:
        is_sent, why = False, str(error)
    except Exception as error:  # noqa: BLE001  # code of a hundred services; its text may contain the address
        is_sent, why = False, f"it failed with {type(error).__name__}"
    took_ms = round(1000 * (time.monotonic() - began))
    return PushReceipt(target=name, service=kind, is_sent=is_sent, why=why, took_ms=took_ms)


def title(news: Alert) -> str:
    """Return the first line of a message, without anything that a service treats as markup."""
    return news.title.translate(FOREIGN)[:120]


def body(news: Alert, link: str) -> str:
    """Return the rest of a message: one line, and the *link* if there is one."""
    return "\n".join(part for part in (news.text.translate(FOREIGN), link) if part)


class _LibraryLog(logging.Handler):
    """Keeps what the library logs in each thread, for `why` only."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._lines: dict[int, list[str]] = {}

    def begin(self) -> None:
        self._lines[threading.get_ident()] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (lines := self._lines.get(threading.get_ident())) is not None and len(lines) < 50:
            lines.append(record.getMessage())

    def why(self) -> str:
        """Return why this thread's message was not sent, in words of ours."""
        text = "\n".join(self._lines.pop(threading.get_ident(), ()))
        if status := STATUS.findall(text):
            return f"it answered {status[-1]}{_phrase(int(status[-1]))}"
        lower = text.lower()
        return next((meaning for part, meaning in CAUSES if part in lower), "the service did not accept it")


def _phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


_library_log: Any = _LibraryLog()
