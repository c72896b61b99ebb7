"""`kasmon web links`: links that open one request or log a browser in, logins, and how to revoke them."""

import asyncio
import os
import time
from typing import Annotated

from kasmon.cli.answer import meant
from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_answer, print_json, say
from kasmon.config.parser import load_or_default
from kasmon.errors import UnavailableError, UsageError
from kasmon.host.rpc.peer import must_be_a_person
from kasmon.model.commands import LINK_ID_LENGTH
from kasmon.model.formatting import duration
from kasmon.paths import user_paths
from kasmon.store.passkeys import Passkey, Passkeys
from kasmon.store.request_links import LinkState, RequestLink, RequestLinks
from kasmon.store.web_logins import LINK_MINUTES, LoginState, WebLogin, WebLogins
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.request_links import link_of, login_link


def list_all(*, wants_json: Json = False) -> None:
    """List the links to requests of the last day, the logins of browsers, and passkeys: whether each still works."""
    where = user_paths()
    links, logins, passkeys = RequestLinks(where).list_all(), WebLogins(where).list_all(), Passkeys(where).list_all()
    _show(links, logins, passkeys, "There are no links.", wants_json=wants_json)


def create(
    wanted: Annotated[str, Arg("Request id, from `kasmon inbox`.", ("REQUEST",), completer="requests")],
    /,
    *,
    wants_json: Json = False,
) -> None:
    """Print a link that opens the page of one request in a browser, and answers it once. `kasmon web` serves it."""
    where = user_paths()
    asyncio.run(must_be_a_person(os.getpid(), None, action="create links to requests"))
    _, request = meant(read_fleet(where), wanted)
    try:
        url = link_of(where, load_or_default(where, note).web, request, time.time())
    except OSError as error:
        raise UnavailableError(f"no link was created: {error.strerror or error}.") from error
    if not url:
        raise UnavailableError("no `kasmon web` runs that could show the page.", hint="Start it: `kasmon web`.")
    print_answer(url, wants_json=wants_json, link={"url": url, "request": request.id})


def login(*, wants_json: Json = False) -> None:
    """Print a link that logs one browser in to the list of sessions, once. `kasmon web` serves it."""
    where = user_paths()
    asyncio.run(must_be_a_person(os.getpid(), None, action="create links that log in"))
    config = load_or_default(where, note).web
    try:
        url = login_link(where, config, time.time())
    except OSError as error:
        raise UnavailableError(f"no link was created: {error.strerror or error}.") from error
    if not url:
        raise UnavailableError("no `kasmon web` runs that could show the page.", hint="Start it: `kasmon web`.")
    if wants_json:
        print_json(link={"url": url, "id": url.rpartition("/")[2][:LINK_ID_LENGTH]})
        return
    say(url)
    if config.link_url and not config.link_list:
        note(f"it works on this machine only: `kasmon config web.link_list true` also serves it at {config.link_url}.")
    note(f"it works once, within {LINK_MINUTES:g} minutes.")


def revoke(
    wanted: Annotated[str, Arg("Id of the link, login or passkey, from `kasmon web links`.", ("ID",))] = "",
    /,
    *,
    every: Annotated[bool, Arg("Revoke all links, logins and passkeys.", ("--all",))] = False,
    wants_json: Json = False,
) -> None:
    """Revoke one link, login or passkey, or all. A login ends within a second, with its links and its passkeys.

    The logins by a passkey end with it.
    """
    if every == bool(wanted):
        raise UsageError("give the id of one link or login, or --all.", hint="`kasmon web links` lists them.")
    where, now = user_paths(), time.time()
    links, logins, passkeys = RequestLinks(where), WebLogins(where), Passkeys(where)
    is_login = any(each.id == wanted for each in logins.list_all())
    is_passkey = any(each.id == wanted for each in passkeys.list_all())
    ended_logins: tuple[WebLogin, ...] = ()
    ended_passkeys: tuple[Passkey, ...] = ()
    try:
        if every:
            ended_passkeys, ended_logins = passkeys.revoke(now), logins.revoke(now)
        elif is_login:
            ended_passkeys, ended_logins = passkeys.revoke(now, login=wanted), logins.revoke(now, wanted)
        elif is_passkey:
            ended_passkeys, ended_logins = passkeys.revoke(now, wanted), logins.revoke(now, passkey=wanted)
        revoked = () if is_login or is_passkey else links.revoke(now, wanted)
    except OSError as error:
        raise UnavailableError(f"not all was revoked: {error.strerror or error}.") from error
    none = "No link was revoked: none of these worked any more."
    _show(revoked, ended_logins, ended_passkeys, none, wants_json=wants_json)


def _show(
    links: tuple[RequestLink, ...],
    logins: tuple[WebLogin, ...],
    passkeys: tuple[Passkey, ...],
    none: str,
    *,
    wants_json: bool,
) -> None:
    now = time.time()
    if wants_json:
        rows = [_link_object(link, now) for link in links]
        browsers = [_login_object(each, now) for each in logins]
        print_json(links=rows, logins=browsers, passkeys=[_passkey_object(each) for each in passkeys])
        return
    lines = (
        *(_line(link, now) for link in links),
        *(_login_line(each, now) for each in logins),
        *(f"{each.id}  passkey  {_passkey_state(each)}  {each.host}  {each.browser}".rstrip() for each in passkeys),
    )
    say(*lines or (none,))


def _line(link: RequestLink, now: float) -> str:
    state = link.state(now)
    left = f", {duration(link.expires_at - now)} left" if state is LinkState.OPEN else ""
    used = f" ({link.decision})" if link.decision else ""
    return f"{link.id}  {link.request}  {state}{used}{left}"


def _login_line(login: WebLogin, now: float) -> str:
    state = login.state(now)
    left = f", {duration(login.expires_at - now)} left" if state in (LoginState.UNUSED, LoginState.ACTIVE) else ""
    browser = f"  {login.browser}" if login.browser else ""
    return f"{login.id}  login  {state}{left}{browser}"


def _login_object(login: WebLogin, now: float) -> dict[str, object]:
    return {
        "id": login.id,
        "state": login.state(now).value,
        "created_at": login.created_at,
        "expires_at": login.expires_at,
        "used_at": login.used_at,
        "browser": login.browser or None,
        "passkey": login.passkey or None,
        "revoked_at": login.revoked_at,
    }


def _passkey_state(passkey: Passkey) -> str:
    return "active" if passkey.revoked_at is None else "revoked"


def _passkey_object(passkey: Passkey) -> dict[str, object]:
    return {
        "id": passkey.id,
        "state": _passkey_state(passkey),
        "host": passkey.host,
        "login": passkey.login,
        "created_at": passkey.created_at,
        "used_at": passkey.used_at,
        "browser": passkey.browser or None,
        "revoked_at": passkey.revoked_at,
    }


def _link_object(link: RequestLink, now: float) -> dict[str, object]:
    return {
        "id": link.id,
        "request": link.request,
        "session": link.session,
        "digest": link.digest,
        "state": link.state(now).value,
        "created_at": link.created_at,
        "expires_at": link.expires_at,
        "used_at": link.used_at,
        "decision": link.decision.value if link.decision else None,
        "revoked_at": link.revoked_at,
        "login": link.login or None,
    }
