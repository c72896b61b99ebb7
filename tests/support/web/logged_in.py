"""A browser that is logged in to the list of sessions, with each part of what it sends replaceable."""

import http.client
import json
import re
import time
from html import unescape
from typing import Any, Self
from urllib.parse import urlencode

from kasmon.paths import Paths
from kasmon.store.web_logins import WebLogins
from tests.support.web.request_link import BROWSER, FIELD, TYPE
from tests.support.web.web_server import LIMIT_S, Answer, Served


class LoggedIn:
    """A browser that used a link of its own."""

    def __init__(self, served: Served, paths: Paths, host: str = "") -> None:
        self.served, self.logins = served, WebLogins(paths)
        self.host = {"Host": host} if host else {}
        token = self.logins.create(time.time())
        self.link = f"/l/{self.logins.place}/login/{token}"
        self.id = token[:12]
        page = served.ask(self.link, self.host)
        done = served.ask(self.link, {**TYPE, **BROWSER, **self.host}, "POST", urlencode(fields_of(page.body)))
        assert (200, 303) == (page.status, done.status), done.body
        self.path = done.headers["Location"]
        self.set_cookie = done.headers["Set-Cookie"]
        self.cookie = {"Cookie": self.set_cookie.partition(";")[0]}

    def get(self, path: str = "", method: str = "GET", **headers: str) -> Answer:
        return self.served.ask(self.path + path, {**self.cookie, **self.host, **headers}, method)

    def fields(self, path: str = "") -> dict[str, str]:
        """The hidden fields of the page at *path*."""
        return fields_of(self.get(path).body)

    def post(self, path: str, fields: dict[str, Any], headers: dict[str, str] | None = None) -> Answer:
        """Send a form with *fields*; *headers* in place of the browser's own."""
        sent = {**self.cookie, **self.host, **TYPE, **(BROWSER if headers is None else headers)}
        return self.served.ask(self.path + path, sent, "POST", urlencode(fields, doseq=True))

    def prompt(self, session: str, text: str, **fields: Any) -> Answer:
        """Fill in the form of the page of *session*, and press its button."""
        return self.post(f"s/{session}", {**self.fields(f"s/{session}"), "prompt": text, **fields})

    def stream(self, session: str = "", **headers: str) -> "Stream":
        return Stream(self, f"events?session={session}" if session else "events", headers)


class Stream:
    """An open stream of events."""

    def __init__(self, browser: LoggedIn, path: str, headers: dict[str, str]) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", browser.served.view.port, timeout=LIMIT_S)
        self._line.request("GET", browser.path + path, headers={**browser.cookie, **browser.host, **headers})
        self._answer = self._line.getresponse()
        self.status = self._answer.status
        self.shown: dict[str, str] = {}
        """The blocks, by id, as a page has them now."""

    def next(self) -> bool:
        """Read one event; False at the end."""
        event = ""
        while line := self._answer.readline().decode():
            if line == "\n" and event:
                break
            event += line
        if "event: end" in event or not event:
            return False
        for data in re.findall(r"^data: (.*)$", event, re.MULTILINE):
            change = json.loads(data)
            known = self.shown | dict(change["blocks"])
            self.shown = {name: known[name] for name in change["order"]}
        return True

    def until(self, *texts: str) -> None:
        """Read until a block contains all *texts*."""
        while not any(all(text in unescape(html) for text in texts) for html in self.shown.values()):
            assert self.next(), f"no {texts} in {self.shown}"

    def close(self) -> None:
        self._answer.close()
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def fields_of(html: str) -> dict[str, str]:
    """The hidden fields of a page; those of several forms have the same values."""
    return {name: unescape(value) for name, value in FIELD.findall(html)}
