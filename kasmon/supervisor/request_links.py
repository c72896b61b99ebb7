"""Links to pages of `kasmon web`, if one runs: `link_of` opens one request, `login_link` the list of sessions."""

import contextlib
import os
from collections.abc import Iterator

from kasmon.config.schema import WebConfig
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.model.permission import Request
from kasmon.paths import Paths, private_folder
from kasmon.store.request_links import RequestLinks
from kasmon.store.web_logins import WebLogins

FOLDER = "r"
"""The first part of the path of the page of every request."""
LIST_FOLDER = "l"
"""The first part of the path of the list of sessions."""


def link_of(paths: Paths, config: WebConfig, request: Request, now: float, login: str = "") -> str:
    """Return a new link to the page of *request*, at *now* in seconds since the epoch; empty if no `kasmon web` runs.

    The link is a secret: it lets its reader answer this request, once. *login*: as `RequestLink.login`. Raises
    `UnavailableError` if the link could not be recorded; else as `served_address`.
    """
    base = served_address(paths)
    if not base:
        return ""
    token = RequestLinks(paths).create(request, config.link_minutes, now, login)
    return f"{config.link_url or base}/{FOLDER}/{token}"


def login_link(paths: Paths, config: WebConfig, now: float) -> str:
    """Return a new link that logs one browser in to the list of sessions, once; empty if no `kasmon web` runs.

    Raises as `link_of`.
    """
    base = served_address(paths)
    if not base:
        return ""
    logins = WebLogins(paths)
    token = logins.create(now)
    return f"{(config.link_list and config.link_url) or base}/{LIST_FOLDER}/{logins.place}/login/{token}"


def served_address(paths: Paths) -> str:
    """Return the address of the running `kasmon web`, as `http://127.0.0.1:8000`; empty if none runs."""
    if lock_holder(paths.web_lock) is None:
        return ""
    lines = paths.web_lock.read_text("utf-8").splitlines()
    return lines[1] if len(lines) == 2 else ""  # 1 until it listens


@contextlib.contextmanager
def announced_address(paths: Paths, address: str) -> Iterator[bool]:
    """Have `served_address` return *address* meanwhile. False if it already returns that of another process."""
    private_folder(paths.state)
    lock = HostLock(paths.web_lock)
    try:
        is_ours = lock.acquire()
        if is_ours and lock.handle is not None:
            os.pwrite(lock.handle, f"{os.getpid()}\n{address}\n".encode(), 0)
        yield is_ours
    finally:
        lock.let_go()
