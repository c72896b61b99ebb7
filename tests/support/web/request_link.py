"""A link to a request, opened and answered as a browser does it, with each part of that replaceable."""

import re
import time
from html import unescape
from typing import Any, NamedTuple
from urllib.parse import urlencode

from kasmon.model.permission import Request
from kasmon.paths import Paths
from kasmon.store.request_links import RequestLinks
from tests.support.web.web_server import Answer, Served

FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
TYPE = {"Content-Type": "application/x-www-form-urlencoded"}
BROWSER = {"Origin": "null", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
"""What Chromium sends with a form of a page that has the policy `no-referrer`."""


class OpenedLink(NamedTuple):
    """The path of a link on a server."""

    served: Served
    path: str

    def open(self, query: str = "", method: str = "GET", **headers: str) -> Answer:
        return self.served.ask(self.path + query, headers, method)

    def forms(self, query: str = "") -> dict[str, dict[str, str]]:
        """The hidden fields of each form of the page, by its decision."""
        forms = self.open(query).body.split("<form")[1:]
        fields = [{name: unescape(value) for name, value in FIELD.findall(form)} for form in forms]
        return {each["decision"]: each for each in fields}

    def send(self, fields: dict[str, Any], headers: dict[str, str] | None = None) -> Answer:
        """Send a form with *fields*; *headers* in place of the browser's own."""
        sent = TYPE | (BROWSER if headers is None else headers)
        return self.served.ask(self.path, sent, "POST", urlencode(fields, doseq=True))

    def answer(self, decision: str, **fields: Any) -> Answer:
        """Press the button of *decision*, with further *fields* filled in."""
        return self.send({**self.forms()[decision], **fields})


def link_to(served: Served, paths: Paths, request: Request, minutes: float = 15.0, ago: float = 0.0) -> OpenedLink:
    """A new link to *request*, created *ago* seconds ago."""
    return OpenedLink(served, f"/r/{RequestLinks(paths).create(request, minutes, time.time() - ago)}")
