"""Prints every style and every kind of width that a terminal knows, then waits for keys and prints nothing more."""

import os
import sys
import tty

SGR = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    "4:3",
    "1;3;31",
    "2;7",
    "1;4;9;38;5;208",
    "7;31;42",
    "38:5:99",
    "38:2::9:8:7",
    "48:2:1:2:3",
)
ROWS = (
    "".join(f"\x1b[{code}m{code:3d}\x1b[0m" for code in (*range(30, 38), *range(90, 98))),
    "".join(f"\x1b[{code}m{code:4d}\x1b[0m" for code in (*range(40, 48), *range(100, 108))),
    *(
        "".join(f"\x1b[38;5;{n}mx\x1b[48;5;{255 - n}my" for n in range(first, first + 60))
        for first in range(0, 240, 60)
    ),
    "\x1b[0m" + "".join(f"\x1b[38;2;{n};{255 - n};{n * 7 % 256}mx\x1b[48;2;9;{n};3my" for n in range(0, 220, 4)),
    "\x1b[0m" + "".join(f"\x1b[{code}m {code} \x1b[0m" for code in SGR),
    "\x1b[41mred to the edge\x1b[K",
    "\x1b[0mplain 日本語 wide e\u0301 combining ✅ \U0001f469\u200d\U0001f469\u200d\U0001f467 |",
    "warn \u26a0\ufe0f heart \u2764\ufe0f key 1\ufe0f\u20e3 |",
    "flag \U0001f3f3\ufe0f\u200d\U0001f308 | de \U0001f1e9\U0001f1ea |",
    "thumb \U0001f44d\U0001f3fd | dev \U0001f468\U0001f3fd\u200d\U0001f4bb | half \U0001f1e9 |",
    "hindi \u0915\u093f \u0928\u092e\u0938\u094d\u0924\u0947 | thai \u0e01\u0e47 | jamo \u1112\u1161\u11ab |",
    "unseen a\u200bb | turned \u05d0\u05d1 \u202eabc\u202c | mark \ufeff| shy a\xadb |",
    "hexagram \u4dc0 | trigram \u2630 |",
    "\x1b(0lqqqk x~`\x1b(B box ┌─┐ ▁▂▃ ⣿⡇ ░▒▓ \ue0b0 ",
    "日" * 30 + "\x1b[7m日\x1b[0m",
    "\x1b[4;58;2;255;0;0munder\x1b[0m \x1b[21mdouble\x1b[0m tab\tbed",
)

if __name__ == "__main__":
    tty.setraw(0)
    sys.stdout.write("\x1b[2J\x1b[H" + "\r\n".join(ROWS) + "\r\n\x1b[35mend of torture\x1b[0m")
    sys.stdout.flush()
    while os.read(0, 100):
        pass
