"""How the pages look on a phone of 390x844: nothing is too wide, too small to tap, or too faint to read.

KASMON_PICTURES=FOLDER keeps each page, dark and light, as far down as it goes.
"""

import base64
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from kasmon.host.session.request_registry import CHANGED
from kasmon.model.events import (
    Event,
    MessageWritten,
    RequestAnswered,
    RequestOpened,
    RequestWithdrawn,
)
from kasmon.model.permission import Decision, Request
from kasmon.paths import private_folder, write_private
from kasmon.store.passkeys import Passkey, Passkeys
from kasmon.store.request_links import RequestLinks
from kasmon.store.web_logins import WebLogins
from tests.support.sample_fleet import change, command, login, plan, question
from tests.support.supervisor.env import Env
from tests.support.wait import until
from tests.support.web.chromium import Chromium, Page
from tests.web.conftest import Web

pytestmark = pytest.mark.web

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"
LONG = "a-name-without-a-space-" * 12
RIGHT_TO_LEFT = "מחק את כל הקבצים בתיקייה הזאת"
WIDE = "索引を高速にする" * 12
LONG_LINE = f"curl -H 'Authorization: {KEY}' https://example.org/\u200b{'x' * 300} && rm -rf ./{RIGHT_TO_LEFT} # {WIDE}"
CHOICES = ("SQLite in the state folder", WIDE, RIGHT_TO_LEFT, LONG)
REQUESTS: Mapping[str, Request] = {
    "permission": command("permission", "git push --force origin main", why="The branch was rebased."),
    "marks": command("marks", LONG_LINE, title=LONG, why=RIGHT_TO_LEFT),
    "diff": change("diff"),
    "wide-diff": change("wide-diff", shown=f"--- a/{LONG}\n+++ b/{LONG}\n@@ -1 +1 @@\n-{WIDE}\n+{RIGHT_TO_LEFT}\n"),
    "choices": question(
        "choices", options=CHOICES, option_notes=("No server.", WIDE, RIGHT_TO_LEFT, ""), free_text=True
    ),
    "many": question("many", many=True, free_text=True),
    "free-text": question("free-text", options=(), free_text=True),
    "plan": plan("plan"),
    "sign-in": login("sign-in"),
    "cut": command("cut", "make deploy", may_be_cut=True),
    "screen-only": command("screen-only", "make deploy", answerable=False),
    "parts": command("parts", "\n".join(f"echo {number:05} {'x' * 40}" for number in range(2000))),
    "rule": command("rule", f"make {LONG}"),
}


class Reached(NamedTuple):
    """A kasmon that a command reaches by these variables."""

    variables: Mapping[str, str]


EVENTS: Mapping[str, tuple[Event, ...]] = {
    "answered": (
        RequestAnswered(
            at=time.time(), request=command("answered", "").id, decision=Decision.DENY, by="user", who=f"link {LONG}"
        ),
    ),
    "changed": (
        RequestWithdrawn(at=time.time(), request=command("changed", "").id, why=CHANGED),
        RequestOpened(at=time.time(), request=command("changed", "git push --force", 2)),
    ),
    "withdrawn": (RequestWithdrawn(at=time.time(), request=command("withdrawn", "").id, why="the turn ended"),),
}
"""What happened after the link to `git push` was sent."""
FAULTS = """
(() => {
  const faults = [];
  const say = (what, node) => faults.push(`${what}: <${node.tagName.toLowerCase()} class="${node.className}"> ` +
    JSON.stringify(node.textContent.slice(0, 60)));
  if (document.documentElement.scrollWidth > innerWidth) faults.push(
    `the page is ${document.documentElement.scrollWidth} pixels wide`);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function rgba(colour) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  }
  function light(colour) {
    const [r, g, b] = [...rgba(colour)].slice(0, 3).map(each => each / 255)
      .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function ground(node) {
    for (let each = node; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (rgba(colour)[3]) return colour;
    }
    return "white";
  }
  for (const node of document.body.querySelectorAll("*")) {
    const box = node.getBoundingClientRect();
    if (!box.width || !node.checkVisibility()) continue;
    if (node.matches("a, button, textarea, input[type=text], label.option, .row") && box.height < 44)
      say(`only ${box.height} pixels to tap`, node);
    if (box.left < 0 || box.right > innerWidth) say(`it ends at ${box.right}`, node);
    if (![...node.childNodes].some(each => each.nodeType === 3 && each.data.trim())) continue;
    const style = getComputedStyle(node);
    const pair = [light(style.color), light(ground(node))];
    const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (contrast < 4.5) say(`a contrast of ${contrast.toFixed(2)}`, node);
    if (parseFloat(style.fontSize) < 13) say(`text of ${style.fontSize}`, node);
    if (node.matches("textarea, input") && parseFloat(style.fontSize) < 16) say("a phone zooms into it", node);
  }
  return faults;
})()
"""


@pytest.fixture
def env() -> Iterator[Env]:
    env = Env()
    private_folder(env.paths.config)
    write_private(env.paths.config_file, b"[web]\nlink_rules = true\n")
    for name, asked in REQUESTS.items():
        env.has(name, RequestOpened(at=time.time(), request=asked), name=name)
        env.hosts(name)
    for name in ("answered", "changed", "withdrawn", "expired", "revoked"):
        env.has(name, RequestOpened(at=time.time(), request=command(name, "git push")), name=name)
        env.hosts(name)
    for name, line in (("hebrew", RIGHT_TO_LEFT), ("wide", WIDE), ("long", LONG)):
        env.has(name, MessageWritten(at=time.time(), text=line), name=line)
        env.hosts(name)
    yield env
    env.close()


@pytest.fixture
def home(env: Env) -> Reached:
    """What `web` serves."""
    return Reached(env.paths.environment_variables())


@pytest.fixture
def page(browser: Chromium) -> Page:
    page = browser.page("about:blank")
    page.as_phone()
    return page


def look(page: Page, address: str, name: str, shows: str) -> list[str]:
    """What is wrong with the page at *address*, in both colour schemes, once it shows *shows*."""
    page.go(address)
    until(lambda: shows in page.says, what=f"{shows!r} on the page {name!r}: {page.says}")
    faults = []
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        faults += [f"{name}, {scheme}: {fault}" for fault in page.run(FAULTS)]
        keep(page, f"{name}-{scheme}")
    return faults


def keep(page: Page, name: str) -> None:
    if folder := os.environ.get("KASMON_PICTURES"):
        height = min(2400, page.run("document.documentElement.scrollHeight"))
        asked = {
            "format": "png",
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": 390, "height": height, "scale": 1},
        }
        picture = page.call("Page.captureScreenshot", asked)["data"]
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(picture))


def test_each_kind_of_request_and_outcome_fits_a_phone(env: Env, web: Web, page: Page) -> None:
    links, origin = RequestLinks(env.paths), f"http://{urlsplit(web.link).netloc}"
    faults = []

    def address(asked: Request, ago: float = 0.0) -> str:
        return f"{origin}/r/{links.create(asked, 15.0, time.time() - ago)}"

    for name, asked in REQUESTS.items():
        faults += look(page, address(asked), name, asked.digest)
    for name, shows in (("answered", "Denied"), ("changed", "changed its request"), ("withdrawn", "Withdrawn")):
        link = address(command(name, "git push"))
        env.tells(name, *EVENTS[name])
        faults += look(page, link, name, shows)
    faults += look(page, address(command("expired", "git push"), 3600), "expired", "has expired")
    link = address(command("revoked", "git push"))
    links.revoke(time.time())
    faults += look(page, link, "revoked", "was revoked")
    faults += look(page, f"{origin}/r/{'x' * 55}", "unknown", "Unknown link")

    assert [] == faults


def test_the_list_its_sessions_and_the_ways_to_log_in_fit_a_phone(env: Env, web: Web, page: Page) -> None:
    logins = WebLogins(env.paths)
    token = logins.create(time.time())
    origin = f"http://localhost:{urlsplit(web.link).port}"
    place = f"{origin}/l/{logins.place}/"
    faults = look(page, f"{place}login/{token}", "login", "Log in to kasmon")
    page.tap("button.allow")
    until(lambda: "Log out" in page.says)
    faults += look(page, place, "list", "Notify this device")
    assert "Add a passkey" in page.says
    for name in ("marks", "hebrew", "wide", "long"):
        faults += look(page, f"{place}s/{name}", f"session-{name}", "Prompt")
    page.go(place)
    until(lambda: "Log out" in page.says)
    page.tap("form[action=logout] button")
    until(lambda: "Logged out" in page.says)
    faults += look(page, place, "logged-out", "Not logged in")
    Passkeys(env.paths).add(
        Passkey(
            id="id1",
            credential=b"c",
            public_key=b"k",
            sign_count=0,
            host="localhost",
            login="l",
            created_at=time.time(),
        )
    )
    faults += look(page, place, "passkey", "Log in with a passkey")

    assert [] == faults
