"""What people press, click and paste, and what their terminal says by itself: bytes, and what a program gets of them.

The program has asked for bracketed pastes and for every report of the mouse in its modern form. Cells are those of
the program's own screen; the test moves them to where that stands.
"""

PASTED, ENDED = "\x1b[200~", "\x1b[201~"

SAME = {
    "a": "a",
    "ctrl+a": "\x01",
    "tab": "\t",
    "enter": "\r",
    "ctrl+j": "\n",
    "ctrl+h": "\x08",
    "backspace": "\x7f",
    "ctrl+space": "\x00",
    "escape": "\x1b",
    "ctrl+backslash": "\x1c",
    "ctrl+^": "\x1e",
    "ctrl+_": "\x1f",
    "alt+b": "\x1bb",
    "alt+shift+b": "\x1bB",
    "alt+enter": "\x1b\r",
    "alt+backspace": "\x1b\x7f",
    "alt+[": "\x1b[",
    "alt+.": "\x1b.",
    "alt+1": "\x1b1",
    "ctrl+alt+a": "\x1b\x01",
    "escape escape": "\x1b\x1b",
    "up": "\x1b[A",
    "up in application mode": "\x1bOA",
    "shift+up": "\x1b[1;2A",
    "alt+up": "\x1b[1;3A",
    "ctrl+alt+up": "\x1b[1;7A",
    "ctrl+alt+shift+up": "\x1b[1;8A",
    "super+up": "\x1b[1;9A",
    "home in the old form": "\x1b[1~",
    "f1": "\x1bOP",
    "f5": "\x1b[15~",
    "alt+f5": "\x1b[15;3~",
    "ctrl+alt+f5": "\x1b[15;7~",
    "f13": "\x1b[25~",
    "f20": "\x1b[34~",
    "keypad enter": "\x1bOM",
    "keypad 5": "\x1bOu",
    "shift+tab": "\x1b[Z",
    "shift+enter in kitty's form": "\x1b[13;2u",
    "ctrl+enter in kitty's form": "\x1b[13;5u",
    "shift+enter in xterm's form": "\x1b[27;2;13~",
    "e acute": "é",
    "a wide character": "日",
    "a family of emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "a combining accent": "e\u0301",
    "a paste": f"{PASTED}a\nb\tc{ENDED}",
    "a paste with an escape": f"{PASTED}x\x1b[31my{ENDED}",
    "a paste with a nul": f"{PASTED}x\x00y{ENDED}",
    "a paste with a return": f"{PASTED}a\rb{ENDED}",
    "an unknown sequence": "\x1b[99;1X",
}
"""Byte for byte what was sent."""

UNDERSTOOD = {
    "alt+enter in kitty's form": ("\x1b[13;3u", "\x1b\r"),
    "ctrl+i in kitty's form": ("\x1b[105;5u", "\t"),
    "ctrl+shift+a in kitty's form": ("\x1b[97;6u", "\x01"),
    "super+a in kitty's form": ("\x1b[97;9u", ""),
    "hyper+a in kitty's form": ("\x1b[97;17u", ""),
    "a is let go": ("\x1b[97;1:3u", ""),
    "a is held": ("\x1b[97;1:2u", "a"),
    "escape in kitty's form": ("\x1b[27u", "\x1b"),
    "ctrl+e acute in kitty's form": ("\x1b[233;5u", "\x1b[233;5u"),
    "shift+a of another layout": ("\x1b[97:65;2u", "A"),
    "a with its text": ("\x1b[97;;97u", "a"),
    "caps lock": ("\x1b[57358u", ""),
    "left shift": ("\x1b[57441u", ""),
    "keypad 5 in kitty's form": ("\x1b[57404u", "5"),
    "a under num lock": ("\x1b[97;129u", "a"),
}
"""Forms that a terminal has only for who asks; a program that did not gets what it understands."""

MOUSE = {
    "left down": "\x1b[<0;5;6M",
    "middle down": "\x1b[<1;5;6M",
    "right up": "\x1b[<2;5;6m",
    "ctrl+left": "\x1b[<16;5;6M",
    "wheel up": "\x1b[<64;5;6M",
    "shift+wheel": "\x1b[<68;5;6M",
    "drag left": "\x1b[<32;5;6M",
    "drag right": "\x1b[<34;5;6M",
    "moved": "\x1b[<35;5;6M",
    "button 8": "\x1b[<128;5;6M",
}
"""The same report, of the cell that the program knows."""

UNHEARD = {
    "the window has the focus": "\x1b[I",
    "an answer about a colour": "\x1b]11;rgb:0000/0000/0000\x1b\\",
    "an answer about the device": "\x1b[?62;22c",
    "an answer about kitty's keys": "\x1b[?1u",
    "an answer about the version": "\x1bP>|ghostty 1.2\x1b\\",
}
"""What a terminal says by itself is no input."""

ALL = (
    {name: (sent, sent) for name, sent in SAME.items()}
    | UNDERSTOOD
    | {name: (sent, "") for name, sent in UNHEARD.items()}
)
