"""Program that plays a working agent: `spinner.py SOURCE [SECONDS OFFSET]`. It draws ten frames a second, as agents do.

SOURCE is how it shows its state: `program` (OSC 7501), `title`, or `screen` alone. With SECONDS it alternates between
working and idle, each for SECONDS, switching at multiples of SECONDS after OFFSET; else it always works.
"""

import os
import sys
import time

FRAME_S = 0.1
GLYPHS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TITLES = {True: "⠋ work", False: "work"}
TALK = "".join(
    f"\x1b[38;5;{75 + row}m• \x1b[39mwhat was said in row {row} of a talk that goes on\r\n" for row in range(30)
)
FOOT = (
    "\r\n\x1b[1m›\x1b[0m \x1b[2mAsk Codex to do anything\x1b[0m\r\n\r\n"
    "  \x1b[38;5;223mGPT-5.5 default\x1b[39m · \x1b[38;5;151m~/work\x1b[39m\r\n"
    "  ← for agents · \x1b[1m?\x1b[0m for shortcuts\x1b[36;3H"
)
START = f"\x1b[H\x1b[2J{TALK}\x1b[32;1H"


def main(source: str, seconds: float, offset: float) -> None:
    began, was_working = time.time(), None
    number = 0
    while True:
        now = time.time()
        working = not seconds or int((now - offset) // seconds) % 2 == 0
        out = ""
        if working != was_working:
            out += START + (f"{FOOT}" if not working else f"\r\n{FOOT}")
            if source == "program":
                out = f"\x1b]7501;state={'working' if working else 'idle'}\x07{out}"
            if source == "title":
                out = f"\x1b]0;{TITLES[working]}\x07{out}"
            was_working = working
        if working:
            glyph, bold = GLYPHS[number % len(GLYPHS)], number % 7
            word = "Working"
            out += f"\x1b[32;1H• {word[:bold]}\x1b[1m{word[bold]}\x1b[0m{word[bold + 1 :]} "
            out += f"\x1b[2m({int(now - began)}s • \x1b[0mesc\x1b[2m to interrupt)\x1b[0m\x1b[36;3H"
            if source == "spinner":
                out += f"\x1b]0;{glyph} work\x07"
        number += 1
        os.write(1, out.encode())
        now = time.time()
        time.sleep(FRAME_S - (now - offset) % FRAME_S)


main(sys.argv[1], *(float(word) for word in (sys.argv[2:] or ("0", "0"))))
