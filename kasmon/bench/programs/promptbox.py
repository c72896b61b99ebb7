"""Program with an input box for prompts that is as difficult as real ones; it writes what it receives to RECORD.

    promptbox.py RECORD [FLAG=VALUE ...]

    drop=N       the first N Enters after each text do nothing
    swallow=S    an Enter within S seconds of other input becomes part of the text
    blind=1      an Enter that arrives before the text is drawn becomes part of it
    holds=S      an Enter takes effect S seconds later, with all that was typed until then
    bare=1       no bracketed paste; a line feed is Enter, and Escape with Enter a new line
    late=S       what it draws is S seconds old
    busy=S       it reads only every S seconds
    ghost=1      it shows a suggestion in its empty box, another one in each frame
    fold=N       it shows a placeholder for a paste of more than N characters
    draft=TEXT   a person has typed TEXT already; SIGUSR1 removes it
    dialog=1     it begins with a question; SIGUSR1 removes it
    asks=S       S seconds after a text it asks a question for half a second, and Enter would answer
    blank=S      Enter clears the screen for S seconds
    dies=N       it exits once it has read N bytes
    turn=S       it works for S seconds at each prompt
    SIGUSR2      it asks a question now, as with `asks`

Records are lines of JSON: {"submitted": TEXT}, or {"answered": KEYS} for what was typed into a question.
"""

import json
import os
import re
import select
import signal
import sys
import time
import tty
import unicodedata

COLUMNS, BOX = 120, 6
ASKS_S = 0.5
BEGINS, ENDS = b"\x1b[200~", b"\x1b[201~"


class BenchPromptBox:
    """The state of the box, and the flags."""

    def __init__(self, record: str, flags: dict[str, str]) -> None:
        self.flags = flags
        self.file = os.open(record, os.O_WRONLY | os.O_APPEND)
        self.text = flags.get("draft", "")
        self.short = ""
        self.is_asking = "dialog" in flags
        self.input = bytearray()
        self.read = self.dropped = self.submitted = 0
        self.works_until = self.question_at = self.question_until = self.blank_until = self.typed_at = self.enter_at = (
            0.0
        )
        self.latest = b""
        self.due: list[tuple[float, bytes]] = []

    def number(self, flag: str) -> float:
        return float(self.flags.get(flag, "0"))

    # -- input

    def feed(self, data: bytes, now: float) -> None:
        self.read += len(data)
        if (limit := self.number("dies")) and self.read >= limit:
            os._exit(3)
        self.input += data
        while self.input and self.process_key(now):
            pass

    def process_key(self, now: float) -> bool:
        """Process the next key; return False if more input is needed first."""
        data = self.input
        if self.is_asking or now < self.question_until:
            self.note(answered=bytes(data).decode("latin-1"))
            data.clear()
        elif data.startswith(BEGINS):
            end = data.find(ENDS)
            if end < 0:
                return False
            self.put(data[len(BEGINS) : end].decode("utf-8", "replace"), now, is_paste=True)
            del data[: end + len(ENDS)]
        elif BEGINS.startswith(data[:6]) and len(data) < 6 and data != b"\x1b":
            return False
        elif data.startswith(b"\x1b\r"):
            del data[:2]
            self.put("\n", now)
        elif data[0] in b"\r\n":
            is_enter = data[0] == 13 or "bare" in self.flags
            del data[:1]
            if is_enter:
                self.enter(now)
            else:
                self.put("\n", now)
        elif data[0] in (0x15, 0x1B):
            if data[0] == 0x15:
                self.text = self.short = ""
            del data[:1]
        else:
            match = re.match(rb"[^\x00-\x1f]+|.", data, re.DOTALL)
            assert match is not None
            letters, end = match[0], match.end()
            text = letters.decode("utf-8", "ignore")
            if len(text.encode()) < len(letters) and end == len(data):  # the rest of a character is on its way
                end = len(text.encode())
            del data[:end]
            self.put(text, now)
            return end > 0
        return True

    def put(self, text: str, now: float, *, is_paste: bool = False) -> None:
        self.text += text
        self.typed_at = now
        if is_paste and self.number("fold") and len(text) > self.number("fold"):
            self.short = f"[Pasted text, {len(text)} chars]"
        if self.number("asks") and not self.question_at:
            self.question_at = now + self.number("asks")

    def enter(self, now: float) -> None:
        if now - self.typed_at < self.number("swallow") or ("blind" in self.flags and self.is_behind(now)):
            self.put("\n", now)
            return
        if self.number("holds") and not self.enter_at:
            self.enter_at = now + self.number("holds")
        if now < self.enter_at:
            return
        self.enter_at = 0.0
        self.blank_until = now + self.number("blank")
        if self.dropped < self.number("drop"):
            self.dropped += 1
            return
        if self.text.strip():
            self.note(submitted=self.text)
            self.submitted += 1
            self.works_until = now + self.number("turn")
        self.text = self.short = ""
        self.dropped, self.question_at = 0, 0.0

    def is_behind(self, now: float) -> bool:
        """Return whether the screen is not up to date."""
        return bool(self.due) or self.frame(now) != self.latest

    def note(self, **record: str) -> None:
        os.write(self.file, json.dumps(record).encode() + b"\n")

    # -- output

    def draw(self, now: float) -> None:
        """Draw the current frame once it is due."""
        if self.enter_at and now >= self.enter_at:
            self.enter(now)
        if self.question_at and now >= self.question_at:
            self.question_until, self.question_at = now + ASKS_S, float("inf")
        if (frame := self.frame(now)) != self.latest:
            self.latest = frame
            self.due.append((now + self.number("late"), frame))
        shown = b""
        while self.due and self.due[0][0] <= now:
            shown = self.due.pop(0)[1]
        if shown:
            os.write(1, shown)

    def frame(self, now: float) -> bytes:
        rows = ["promptbox", "", f"{self.submitted} prompts so far", ""]
        at = (0, 0)
        if now < self.blank_until:
            rows = []
        elif self.is_asking or now < self.question_until:
            rows += ["─" * COLUMNS, "", " Do you want to go on?", "❯ 1. Yes", "  2. No", "", " Enter to confirm · Esc"]
        else:
            rows += ["✻ Working…", ""] if now < self.works_until else []
            box = self.box()
            rows += ["─" * COLUMNS, *box, "─" * COLUMNS, "  ? for shortcuts"]
            at = (len(rows) - 2 - 1, cells(re.sub("\x1b.*", "", box[-1])))
        screen = b"\x1b[?25l\x1b[H\x1b[2J" + "\r\n".join(rows).encode("utf-8", "replace")
        return screen + b"\x1b[%d;%dH\x1b[?25h" % (at[0] + 1, at[1] + 1)

    def box(self) -> list[str]:
        """Return the rows of the box: the end of a text that is too long."""
        text = self.short or self.text
        if not text and "ghost" in self.flags:
            return [f"❯ \x1b[2mTry to refactor part {self.submitted} of it\x1b[0m"]
        rows = [""]
        for sign in text[-BOX * COLUMNS :]:
            if sign == "\n" or cells(rows[-1]) + cells(sign) > COLUMNS - 3:
                rows.append("")
            if sign != "\n":
                rows[-1] += " " if sign == "\t" else sign
        return [("  " if at else "❯ ") + row for at, row in enumerate(rows[-BOX:])]


def cells(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = ("W", "F")
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in wide) for c in text)


def main() -> None:
    flags = dict(word.split("=", 1) for word in sys.argv[2:])
    box = BenchPromptBox(sys.argv[1], flags)

    def clear(*_: object) -> None:
        box.text, box.is_asking = "", False

    def ask(*_: object) -> None:
        box.question_at = time.monotonic()

    signal.signal(signal.SIGUSR1, clear)
    signal.signal(signal.SIGUSR2, ask)
    tty.setraw(0)
    os.write(1, b"" if "bare" in flags else b"\x1b[?2004h")
    busy = box.number("busy")
    while True:
        now = time.monotonic()
        box.draw(now)
        changes_at = max(box.works_until, box.question_until, box.blank_until, box.enter_at) + 0.1
        is_moving = bool(box.due) or now < changes_at or 0 < box.question_at < float("inf")
        if busy:
            time.sleep(busy)
        if select.select([0], [], [], 0.02 if is_moving else 0.2)[0]:
            if not (data := os.read(0, 1 << 20)):
                return
            box.feed(data, time.monotonic())


main()
