"""Program that answers each letter with four capitals of it on a cleared line, on a colourful screen; in raw mode."""

import os
import tty


def main() -> None:
    tty.setraw(0)
    screen = b"\x1b[2J\x1b[H"
    for y in range(1, 38):
        cells = b"".join(b"\x1b[38;5;%dmtok%02d\x1b[0m " % (16 + (x * 7 + y) % 200, x) for x in range(12))
        screen += b"\x1b[%d;1H" % y + cells
    os.write(1, screen + b"\x1b[38;1Hecho-is-ready\x1b[39;1H")
    while data := os.read(0, 4096):
        for letter in data:
            if 97 <= letter <= 122:
                # Every cell differs from the last answer, as a terminal in between sends only changed cells.
                os.write(1, b"\r\x1b[K" + bytes([letter - 32]) * 4)


main()
