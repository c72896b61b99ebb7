"""A real browser without a window, driven by its own protocol over two pipes; it reaches nothing but loopback.

with Chromium(home) as browser:  # each page has cookies of its own
    page = browser.page("http://127.0.0.1:8000/")
    page.shows("3 sessions")
    page.key("a")
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from tests.support.wait import until

LIMIT_S: Final = 100.0
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--enable-unsafe-swiftshader",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--mute-audio",
)
AT_3_AND_4: Final = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for at, end in zip((3, 4), ends):
    os.dup2(end, at)
    os.close(end)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""A browser looks for its pipes there."""
KEEP_TERMINAL: Final = """
Object.defineProperty(Object.prototype, "terminal", {
  configurable: true,
  set(value) {
    Object.defineProperty(this, "terminal", {value, writable: true, enumerable: true, configurable: true});
    if (value && value.buffer) window.seenTerminal = value;
  },
});
"""
"""textual-serve's script keeps its terminal to itself; this way a test can read what is in it, cell by cell."""
READ_TERMINAL: Final = """
(() => {
  const terminal = window.seenTerminal;
  if (!terminal) return "";
  const buffer = terminal.buffer.active, rows = [];
  for (let row = 0; row < terminal.rows; row++)
    rows.push(buffer.getLine(buffer.baseY + row).translateToString(false, 0, terminal.cols));
  return rows.join("\\n");
})()
"""
CODES: Final = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
}


def program() -> str:
    """The browser; skips the test where there is none, and fails it where KASMON_REQUIRE_WEB asks for one."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    if os.environ.get("KASMON_REQUIRE_WEB"):
        pytest.fail("no Chromium is installed, and KASMON_REQUIRE_WEB asks for one")
    pytest.skip("no Chromium is installed")


class NotDoneError(Exception):
    """What the browser would not do."""


class Chromium:
    """A browser with a profile of its own; with the `with` block every process of it ends."""

    def __init__(self, home: Path, *, names: Mapping[str, str] | None = None) -> None:
        """*names*: host names and where they lead, as a hostile name server would have it; all others lead nowhere."""
        led = [f"MAP {name} {address}" for name, address in (names or {}).items()]
        argv = [program(), *FLAGS, f"--user-data-dir={home / 'profile'}", "--window-size=1280,800"]
        argv.append(
            f"--host-resolver-rules={', '.join([*led, 'MAP * ~NOTFOUND', 'EXCLUDE 127.0.0.1', 'EXCLUDE localhost'])}"
        )
        if os.geteuid() == 0:
            argv.append("--no-sandbox")  # its sandbox wants to be started by somebody else than root
        its_in, self._out = os.pipe()
        self._in, its_out = os.pipe()
        self._seen: list[dict[str, Any]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._log = (home / "chromium.log").open("wb")
        environment = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", AT_3_AND_4, str(its_in), str(its_out), *argv, "about:blank"],
            env=environment | {"HOME": str(home), "TMPDIR": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(its_in, its_out),
            start_new_session=True,
        )
        os.close(its_in)
        os.close(its_out)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def page(self, address: str, beside: "Page | None" = None) -> "Page":
        """A new tab that was sent to *address*, with the cookies of the tab *beside* it, or none."""
        context = beside.context if beside else self.call("Target.createBrowserContext")["browserContextId"]
        asked: dict[str, Any] = {"url": "about:blank", "browserContextId": context}
        target = self.call("Target.createTarget", asked)["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, context, target, session)
        page.go(address)
        return page

    def call(self, method: str, parameters: Mapping[str, Any] | None = None, session: str = "") -> Any:
        """What the browser answers to *method*.

        Raises:
            NotDoneError: if it refuses, with its reason.
        """
        self._number += 1
        number = self._number
        asked = {"id": number, "method": method, "params": dict(parameters or {})} | (
            {"sessionId": session} if session else {}
        )
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        answer = until(lambda: self._answers.pop(number, None), LIMIT_S, method)
        if "error" in answer:
            raise NotDoneError(f"{method}: {answer['error']}")
        return answer["result"]

    def told(self, method: str, session: str) -> list[dict[str, Any]]:
        """What the browser told of itself by this name, oldest first."""
        every = [*self._seen]
        return [each["params"] for each in every if (method, session) == (each["method"], each.get("sessionId"))]

    def _read(self) -> None:
        kept = b""
        while piece := os.read(self._in, 1 << 16):
            *lines, kept = (kept + piece).split(b"\0")
            for line in lines:
                message = json.loads(line)
                if "id" in message:
                    self._answers[message["id"]] = message
                else:
                    self._seen.append(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(LIMIT_S)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, 9)
                self._process.wait()
            self._reader.join(LIMIT_S)
            for end in (self._in, self._out):
                os.close(end)
            self._log.close()


class Page:
    def __init__(self, browser: Chromium, context: str, target: str, session: str) -> None:
        self.context = context
        self._browser, self._target, self._session = browser, target, session
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", {"enabled": True})
        self.call("Page.addScriptToEvaluateOnNewDocument", {"source": KEEP_TERMINAL})

    def call(self, method: str, parameters: Mapping[str, Any] | None = None) -> Any:
        return self._browser.call(method, parameters, self._session)

    def front(self) -> None:
        """Be the tab that a person looks at; another one gets no keys and is not drawn."""
        self.call("Page.bringToFront")

    def go(self, address: str) -> None:
        """Open *address*, as if it had been typed."""
        self.call("Page.navigate", {"url": address})

    def run(self, script: str) -> Any:
        """What *script* gives, awaited."""
        done = self.call("Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True})
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    @property
    def text(self) -> str:
        """What its terminal shows, row by row; nothing on the way from one page to the next."""
        return self._read(READ_TERMINAL)

    def shows(self, *texts: str) -> str:
        """Wait until all *texts* are in its terminal at once, and return that."""

        def all_there() -> str:
            seen = self.text
            return seen if all(text in seen for text in texts) else ""

        try:
            return until(all_there, LIMIT_S)
        except TimeoutError:
            raise AssertionError(f"{texts} never came up in:\n{self.text}\n{self.complaints}") from None

    @property
    def columns(self) -> int:
        """How wide its terminal is, in cells."""
        return int(self.run("seenTerminal.cols"))

    @property
    def says(self) -> str:
        """The text of the page around its terminal; nothing on the way from one page to the next."""
        return self._read("document.body ? document.body.innerText : ''")

    def _read(self, script: str) -> str:
        try:
            return str(self.run(script))
        except NotDoneError:
            return ""

    def type(self, text: str) -> None:
        """Press the key of each character."""
        for character in text:
            self.key(character)

    def key(self, key: str, *, control: bool = False) -> None:
        """Press *key*, a character or one of CODES."""
        plain = ord(key.upper()) if len(key) == 1 and key.isascii() and key.isalnum() else 0
        name, code, text = CODES.get(key, (key, plain, key))
        code, text = (221, "") if control and key == "]" else (code, "" if control else text)
        what = {"key": name, "code": name if key in CODES else "", "windowsVirtualKeyCode": code}
        what |= {"modifiers": 2 if control else 0}
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", **what, **({"text": text} if text else {})})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **what})

    def click(self, text: str) -> None:
        """Press the mouse on the first place where the terminal shows *text*."""
        rows = self.shows(text).split("\n")
        [row, column] = next([number, line.index(text)] for number, line in enumerate(rows) if text in line)
        box = self.run(
            "(() => { const box = document.querySelector('.xterm-screen').getBoundingClientRect();"
            " return [box.x, box.y, box.width / seenTerminal.cols, box.height / seenTerminal.rows]; })()"
        )
        x, y = box[0] + (column + 0.5) * box[2], box[1] + (row + 0.5) * box[3]
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)

    def as_phone(self) -> None:
        """Give the page a phone's size, 390x844, with a finger instead of a mouse, from its next address on."""
        size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
        self.call("Emulation.setDeviceMetricsOverride", size)
        self.call("Emulation.setTouchEmulationEnabled", {"enabled": True})

    def tap(self, selector: str) -> None:
        """Tap the middle of the element that *selector* finds, after it was scrolled into view."""
        script = (
            "(() => { const found = document.querySelector(%s); found.scrollIntoView({block: 'center'});"
            " const box = found.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        x, y = self.run(script % json.dumps(selector))
        self.call("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        self.call("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    def picture(self, path: Path) -> None:
        """Save what a person would see."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", {"format": "png"})["data"]))

    @property
    def requested(self) -> list[str]:
        """Every address that the page asked for, sockets included."""
        requests = self._browser.told("Network.requestWillBeSent", self._session)
        sockets = self._browser.told("Network.webSocketCreated", self._session)
        return [each["request"]["url"] for each in requests] + [each["url"] for each in sockets]

    @property
    def complaints(self) -> list[str]:
        """What the browser found wrong with the page."""
        logged = [each["entry"]["text"] for each in self._browser.told("Log.entryAdded", self._session)]
        thrown = self._browser.told("Runtime.exceptionThrown", self._session)
        return logged + [json.dumps(each["exceptionDetails"]) for each in thrown]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", {"targetId": self._target})
