"""Where each byte of stdin goes while a terminal has the focus."""

import pytest

from kasmon.host.rpc.frames import TerminalModes
from kasmon.tui.terminal.key_encoding import CTRL_BRACKET, encode_key, leave_key
from kasmon.tui.terminal.stdin_tap import HOLD_S, PASTE, PASTE_BYTES, PASTE_END, STALL_S, FocusGeometry, StdinTap

AREA = FocusGeometry(x=10, y=2, width=40, height=20)


class Session:
    """What reached the session, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, object]] = []

    def send_keys(self, data: bytes) -> None:
        if self.said and self.said[-1][0] == "keys" and isinstance(last := self.said[-1][1], bytes):
            self.said[-1] = ("keys", last + data)
        else:
            self.said.append(("keys", data))

    def paste(self, text: str) -> None:
        self.said.append(("paste", text))

    def scroll(self, lines: int) -> None:
        self.said.append(("scroll", lines))

    def read(self) -> None:
        self.said.append(("read", None))

    def leave(self) -> None:
        self.said.append(("leave", None))

    @property
    def bytes(self) -> bytes:
        return b"".join(value for kind, value in self.said if kind == "keys" and isinstance(value, bytes))


def tapped(*reads: bytes, aim: FocusGeometry = AREA) -> tuple[Session, bytes]:
    """The session and what Textual got after these reads, each followed by silence."""
    session = Session()
    tap = StdinTap(session)
    tap.aim = aim
    textual = b""
    for data in reads:
        textual += tap.feed(data)
    while tap.hold_s is not None:
        tap.settle()
    return session, textual


def split(data: bytes) -> list[bytes]:
    return [bytes((byte,)) for byte in data]


PLAIN_KEYS = {
    "a": b"a",
    "e acute": "é".encode(),
    "kanji": "日本".encode(),
    "family emoji": "👩‍👩‍👧".encode(),
    "combining": "e\u0301".encode(),
    "enter": b"\r",
    "line feed": b"\n",
    "tab": b"\t",
    "shift+tab": b"\x1b[Z",
    "backspace": b"\x7f",
    "ctrl+h": b"\x08",
    "ctrl+space": b"\0",
    "ctrl+a": b"\x01",
    "ctrl+c": b"\x03",
    "ctrl+z": b"\x1a",
    "ctrl+backslash": b"\x1c",
    "ctrl+^": b"\x1e",
    "ctrl+_": b"\x1f",
    "escape": b"\x1b",
    "escape escape": b"\x1b\x1b",
    "alt+b": b"\x1bb",
    "alt+shift+B": b"\x1bB",
    "alt+enter": b"\x1b\r",
    "alt+backspace": b"\x1b\x7f",
    "alt+[": b"\x1b[",
    "alt+]": b"\x1b]",
    "alt+shift+O": b"\x1bO",
    "alt+shift+P": b"\x1bP",
    "alt+_": b"\x1b_",
    "alt+.": b"\x1b.",
    "alt+1": b"\x1b1",
    "alt+e acute": "\x1bé".encode(),
    "ctrl+alt+a": b"\x1b\x01",
    "up": b"\x1b[A",
    "up in application mode": b"\x1bOA",
    "shift+up": b"\x1b[1;2A",
    "alt+up": b"\x1b[1;3A",
    "ctrl+alt+shift+up": b"\x1b[1;8A",
    "escape up": b"\x1b\x1b[A",
    "home": b"\x1b[H",
    "home, the old form": b"\x1b[1~",
    "end": b"\x1b[F",
    "page up": b"\x1b[5~",
    "delete": b"\x1b[3~",
    "f1": b"\x1bOP",
    "shift+f3": b"\x1b[1;2R",
    "f5": b"\x1b[15~",
    "ctrl+alt+f5": b"\x1b[15;7~",
    "f13": b"\x1b[25~",
    "f20": b"\x1b[34~",
    "f1 of the linux console": b"\x1b[[A",
    "rxvt shift+right": b"\x1b[c",
    "rxvt shift+delete": b"\x1b[3$",
    "keypad enter in application mode": b"\x1bOM",
    "shift+enter, set up as escape and enter": b"\x1b\r",
    "shift+enter in kitty's form": b"\x1b[13;2u",
    "shift+enter in xterm's form": b"\x1b[27;2;13~",
    "ctrl+enter in kitty's form": b"\x1b[13;5u",
}


@pytest.mark.parametrize("key", PLAIN_KEYS.values(), ids=PLAIN_KEYS.keys())
def test_every_key_reaches_the_session_byte_for_byte(key: bytes) -> None:
    session, textual = tapped(key)

    assert (key, b"") == (session.bytes, textual)


@pytest.mark.parametrize("key", PLAIN_KEYS.values(), ids=PLAIN_KEYS.keys())
def test_a_key_may_come_in_pieces(key: bytes) -> None:
    session, textual = tapped(*split(key))

    assert (key, b"") == (session.bytes, textual)


def test_all_keys_in_one_read_arrive_in_order() -> None:
    everything = b"x".join(PLAIN_KEYS.values()) + b"x"

    assert everything == tapped(everything)[0].bytes


KITTY = {
    "a": (b"\x1b[97u", b"a"),
    "a with its text": (b"\x1b[97;;97u", b"a"),
    "A": (b"\x1b[97:65;2u", b"A"),
    "A with its text": (b"\x1b[97;2;65u", b"A"),
    "e acute with its text": (b"\x1b[233;;233u", "é".encode()),
    "escape": (b"\x1b[27u", b"\x1b"),
    "enter": (b"\x1b[13u", b"\r"),
    "tab": (b"\x1b[9u", b"\t"),
    "shift+tab": (b"\x1b[9;2u", b"\x1b[Z"),
    "backspace": (b"\x1b[127u", b"\x7f"),
    "alt+backspace": (b"\x1b[127;3u", b"\x1b\x7f"),
    "alt+enter": (b"\x1b[13;3u", b"\x1b\r"),
    "ctrl+a": (b"\x1b[97;5u", b"\x01"),
    "ctrl+i": (b"\x1b[105;5u", b"\t"),
    "ctrl+alt+a": (b"\x1b[97;7u", b"\x1b\x01"),
    "ctrl+shift+a": (b"\x1b[97;6u", b"\x01"),
    "ctrl+space": (b"\x1b[32;5u", b"\0"),
    "ctrl+c with caps lock": (b"\x1b[99;69u", b"\x03"),
    "a with num lock": (b"\x1b[97;129u", b"a"),
    "a again (repeat)": (b"\x1b[97;1:2u", b"a"),
    "a goes up": (b"\x1b[97;1:3u", b""),
    "up goes up": (b"\x1b[1;1:3A", b""),
    "up repeats": (b"\x1b[1;1:2A", b"\x1b[1;1A"),
    "shift alone": (b"\x1b[57441u", b""),
    "caps lock": (b"\x1b[57358u", b""),
    "super+a": (b"\x1b[97;9u", b""),
    "keypad 5": (b"\x1b[57404u", b"5"),
    "keypad enter": (b"\x1b[57414u", b"\r"),
    "keypad left": (b"\x1b[57417u", b"\x1b[D"),
    "keypad page up": (b"\x1b[57421u", b"\x1b[5~"),
    "f13": (b"\x1b[57376u", b"\x1b[25~"),
    "ctrl+a in xterm's form": (b"\x1b[27;5;97~", b"\x01"),
    "ctrl+shift+i of a Turkish layout": (b"\x1b[105:304;6u", b"\x1b[105:304;6u"),
    "a with half a character as its text": (b"\x1b[97;;55296u", b""),
}


@pytest.mark.parametrize(("said", "understood"), KITTY.values(), ids=KITTY.keys())
def test_modern_key_codes_become_common_ones(said: bytes, understood: bytes) -> None:
    """They come from keys that were under way when the focus began, and from terminals set up for them."""
    assert understood == tapped(said)[0].bytes


CURSOR_KEYS = {
    b"\x1b[A": b"\x1bOA",
    b"\x1b[D": b"\x1bOD",
    b"\x1b[H": b"\x1b[1~",
    b"\x1b[F": b"\x1b[4~",
    b"\x1b[1;2A": b"\x1b[1;2A",
}


@pytest.mark.parametrize(("typed", "sent"), CURSOR_KEYS.items())
def test_arrows_take_the_application_form_if_the_program_requested_it(typed: bytes, sent: bytes) -> None:
    assert sent == tapped(typed, aim=FocusGeometry(modes=TerminalModes(cursor_keys=True)))[0].bytes


def test_an_escape_key_waits_a_hundredth_of_a_second_at_most() -> None:
    """It may be the beginning of something that a terminal says by itself."""
    session = Session()
    tap = StdinTap(session)

    tap.feed(b"\x1b")
    assert (HOLD_S, b"") == (tap.hold_s, session.bytes)

    tap.settle()
    assert (None, b"\x1b") == (tap.hold_s, session.bytes)


def test_input_that_cannot_start_a_sequence_is_not_delayed() -> None:
    session = Session()
    tap = StdinTap(session)

    tap.feed(b"\x1bb\x1b\x1b[Aq")

    assert (None, b"\x1bb\x1b\x1b[Aq") == (tap.hold_s, session.bytes)


REPLIES = {
    "device attributes": b"\x1b[?62;22c",
    "secondary attributes": b"\x1b[>41;370;0c",
    "tertiary attributes": b"\x1bP!|00000000\x1b\\",
    "cursor position": b"\x1b[12;40R",
    "extended cursor position": b"\x1b[?12;40;1R",
    "status": b"\x1b[0n",
    "colour scheme": b"\x1b[?997;1n",
    "background colour": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    "background colour, ended by a bell": b"\x1b]11;rgb:0000/0000/0000\x07",
    "palette": b"\x1b]4;1;rgb:ffff/0000/0000\x1b\\",
    "version": b"\x1bP>|ghostty 1.2\x1b\\",
    "terminfo": b"\x1bP1+r544e=787465726d\x1b\\",
    "settings": b"\x1bP1$r0m\x1b\\",
    "kitty's flags": b"\x1b[?1u",
    "kitty's graphics": b"\x1b_Gi=31;OK\x1b\\",
    "other keys": b"\x1b[>4;2m",
    "window size": b"\x1b[8;24;80t",
    "terminal parameters": b"\x1b[2;1;1;128;128;1;0x",
    "sixel": b"\x1b[?1;0;256S",
    "a mouse of 1988": b"\x1b[M !!",
    "a mouse of urxvt": b"\x1b[32;5;6M",
}
FOR_TEXTUAL = {
    "focus": b"\x1b[I",
    "no focus": b"\x1b[O",
    "synchronized output": b"\x1b[?2026;2$y",
    "in-band size": b"\x1b[48;24;80;480;800t",
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
def test_replies_of_a_terminal_reach_no_session(reply: bytes) -> None:
    session, textual = tapped(b"a" + reply + b"b")

    assert (b"ab", b"") == (session.bytes, textual)


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
def test_replies_in_pieces_reach_no_session(reply: bytes) -> None:
    session, textual = tapped(*split(reply), b"b")

    assert (b"b", b"") == (session.bytes, textual)


@pytest.mark.parametrize("report", FOR_TEXTUAL.values(), ids=FOR_TEXTUAL.keys())
def test_focus_modes_and_size_are_passed_to_textual(report: bytes) -> None:
    assert (b"ab", report) == (tapped(b"a" + report + b"b")[0].bytes, tapped(b"a" + report + b"b")[1])
    assert report == tapped(*split(report))[1]


def test_half_a_reply_is_dropped_after_a_second() -> None:
    session = Session()
    tap = StdinTap(session)

    tap.feed(b"\x1b]11;rgb:00")
    assert STALL_S == tap.hold_s
    tap.settle()
    tap.feed(b"x")

    assert b"x" == session.bytes


def test_an_endless_reply_is_dropped_and_takes_no_memory() -> None:
    session = Session()
    tap = StdinTap(session)
    for _ in range(40):
        tap.feed(b"\x1b]11;" + b"a" * 9000 if not tap.hold_s else b"a" * 9000)

    tap.feed(b"\x1b\\ok")

    assert b"ok" == session.bytes


LEAVING = (
    b"\x1d",
    b"\x1b[24~",
    b"\x1b[24;1:1~",
    b"\x1b[24;129~",
    b"\x1b[93;5u",
    b"\x1b[93;5:1u",
    b"\x1b[93;69u",
    b"\x1b[27;5;93~",
    b"\x1b[1098::93;5u",
)


@pytest.mark.parametrize("pressed", LEAVING)
def test_the_leave_key_leaves_in_every_form(pressed: bytes) -> None:
    session, textual = tapped(b"ab" + pressed + b"cd")

    assert [("keys", b"ab"), ("leave", None)] == session.said
    assert b"cd" == textual


@pytest.mark.parametrize("pressed", LEAVING[1:])
def test_the_leave_key_may_come_in_pieces(pressed: bytes) -> None:
    assert [("leave", None)] == tapped(*split(pressed))[0].said


@pytest.mark.parametrize(
    "typed",
    [b"\x1b[24;1:3~", b"\x1b[24;2~", b"\x1b[23~", b"\x1b[93;5:3u", b"\x1b[93;6u", b"\x1b[93;7u", b"]", b"\x1b]"],
)
def test_no_other_key_leaves(typed: bytes) -> None:
    assert ("leave", None) not in tapped(typed)[0].said


def test_another_leave_key_can_be_chosen() -> None:
    session = Session()

    assert b"x" == StdinTap(session, [leave_key("f12")]).feed(b"\x1d\x1b[24~x")
    assert [("keys", b"\x1d"), ("leave", None)] == session.said


@pytest.mark.parametrize("name", ["ctrl+]", "Ctrl+]", "ctrl+right_square_bracket"])
def test_the_leave_key_is_set_by_its_common_names(name: str) -> None:
    assert CTRL_BRACKET == leave_key(name)


@pytest.mark.parametrize("name", ["", "x", "ctrl+[", "ctrl+m", "ctrl+alt+x", "ctrl+?", "f13", "alt+f1"])
def test_a_key_that_cannot_leave_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot leave the focus"):
        leave_key(name)


def test_a_paste_is_sent_as_one_text() -> None:
    assert [("paste", "a\rb\tc é")] == tapped(PASTE + "a\rb\tc é".encode() + PASTE_END)[0].said
    assert [("paste", "a\rb\tc é")] == tapped(*split(PASTE + "a\rb\tc é".encode() + PASTE_END))[0].said


@pytest.mark.parametrize("inside", [b"x\x1b[31my", b"x\0y", b"\xff\xfe", b"\x1b[20", b""], ids=repr)
def test_a_paste_with_control_characters_is_sent_byte_for_byte(inside: bytes) -> None:
    """tmux 3.7 would rewrite an escape in a paste; an empty one tells some agents of a picture on the clipboard."""
    whole = PASTE + inside + PASTE_END

    assert [("keys", whole)] == tapped(whole)[0].said
    assert [("keys", whole)] == tapped(*split(whole))[0].said


def test_keys_and_pastes_keep_their_order_and_the_leave_key_in_a_paste_is_only_text() -> None:
    session, _ = tapped(PASTE + b"a\x1db" + PASTE_END)
    assert [("keys", PASTE + b"a\x1db" + PASTE_END)] == session.said

    session, _ = tapped(b"a" + PASTE + b"b" + PASTE_END + b"c")
    assert [("keys", b"a"), ("paste", "b"), ("keys", b"c")] == session.said


def test_a_paste_without_an_end_does_not_block_the_leave_key() -> None:
    session, _ = tapped(PASTE + b"half", b"", b"\x1d")
    assert [("keys", PASTE + b"half\x1d" + PASTE_END)] == session.said

    tap = StdinTap(session := Session())
    tap.feed(PASTE + b"half")
    assert STALL_S == tap.hold_s
    tap.settle()
    tap.feed(b"\x1d")
    assert [("paste", "half"), ("leave", None)] == session.said


def test_a_very_long_paste_is_sent_in_pieces() -> None:
    session, _ = tapped(PASTE + b"x" * (PASTE_BYTES + 1), b"yz" + PASTE_END)

    assert [("paste", "x" * (PASTE_BYTES + 1)), ("paste", "yz")] == session.said


CLICK, DRAG, MOVE, UP, WHEEL = (
    b"\x1b[<0;15;5M",
    b"\x1b[<32;16;5M",
    b"\x1b[<35;17;5M",
    b"\x1b[<0;17;5m",
    b"\x1b[<64;15;5M",
)
ALL = CLICK + DRAG + UP + MOVE + WHEEL


def aimed(**modes: object) -> FocusGeometry:
    return FocusGeometry(x=10, y=2, width=40, height=20, modes=TerminalModes(**modes))  # type: ignore[arg-type]


def test_the_mouse_counts_from_the_terminals_own_corner_and_in_the_cells_a_cropped_pane_knows() -> None:
    session, textual = tapped(CLICK + UP, aim=aimed(mouse="standard", mouse_sgr=True))
    assert (b"\x1b[<0;5;3M\x1b[<0;7;3m", b"") == (session.bytes, textual)

    aim = FocusGeometry(
        x=10, y=2, width=40, height=20, left=7, top=3, modes=TerminalModes(mouse="standard", mouse_sgr=True)
    )
    assert b"\x1b[<0;12;6M" == tapped(CLICK, aim=aim)[0].bytes


def test_pixels_become_cells() -> None:
    session = Session()
    tap = StdinTap(session)
    tap.aim, tap.cell = aimed(mouse="standard", mouse_sgr=True), (10.0, 20.0)

    tap.feed(b"\x1b[<0;141;81M\x1b[<0;150;100m")

    assert b"\x1b[<0;5;3M\x1b[<0;5;3m" == session.bytes


def test_a_program_without_sgr_gets_the_old_form() -> None:
    assert b"\x1b[M %#\x1b[M#'#" == tapped(CLICK + UP, aim=aimed(mouse="standard"))[0].bytes
    far = FocusGeometry(width=400, height=20, modes=TerminalModes(mouse="standard"))
    assert b"" == tapped(b"\x1b[<0;230;5M", aim=far)[0].bytes


@pytest.mark.parametrize(
    ("mouse", "reports"),
    [
        ("standard", b"\x1b[<0;5;3M\x1b[<0;7;3m\x1b[<64;5;3M"),
        ("button", b"\x1b[<0;5;3M\x1b[<32;6;3M\x1b[<0;7;3m\x1b[<64;5;3M"),
        ("all", b"\x1b[<0;5;3M\x1b[<32;6;3M\x1b[<0;7;3m\x1b[<35;7;3M\x1b[<64;5;3M"),
    ],
)
def test_a_program_gets_the_reports_it_requested(mouse: str, reports: bytes) -> None:
    assert reports == tapped(ALL, aim=aimed(mouse=mouse, mouse_sgr=True))[0].bytes


def test_the_mouse_outside_is_passed_to_the_dashboard() -> None:
    session, textual = tapped(b"\x1b[<0;3;1M\x1b[<64;3;1M", aim=aimed(mouse="all", mouse_sgr=True))

    assert (b"", b"\x1b[<0;3;1M\x1b[<64;3;1M") == (session.bytes, textual)


def test_a_button_belongs_to_where_it_was_pressed() -> None:
    aim = aimed(mouse="button", mouse_sgr=True)
    inside_out, to_textual = tapped(CLICK + b"\x1b[<32;3;1M\x1b[<0;3;1m" + b"\x1b[<0;3;1M", aim=aim)
    assert b"\x1b[<0;5;3M\x1b[<32;1;1M\x1b[<0;1;1m" == inside_out.bytes
    assert b"\x1b[<0;3;1M" == to_textual

    outside_in, to_textual = tapped(b"\x1b[<0;3;1M" + DRAG + UP + CLICK, aim=aim)
    assert b"\x1b[<0;3;1M" + DRAG + UP == to_textual
    assert b"\x1b[<0;5;3M" == outside_in.bytes


def test_the_wheel_scrolls_the_history_and_is_arrows_on_a_programs_own_screen_without_mouse() -> None:
    assert [("scroll", 3), ("scroll", -3)] == tapped(WHEEL + b"\x1b[<65;15;5M")[0].said
    assert b"\x1b[A" * 3 == tapped(WHEEL, aim=aimed(alternate=True))[0].bytes
    assert b"\x1bOA" * 3 == tapped(WHEEL, aim=aimed(alternate=True, cursor_keys=True))[0].bytes

    aim = FocusGeometry(x=10, y=2, width=40, height=20, modes=TerminalModes(mouse="all", mouse_sgr=True), scrolled=5)
    assert [("scroll", 3)] == tapped(WHEEL, aim=aim)[0].said


def test_shift_and_page_keys_scroll_the_history_and_shift_and_home_read_what_was_printed() -> None:
    assert [("scroll", 19), ("scroll", -19)] == tapped(b"\x1b[5;2~\x1b[6;2~")[0].said
    assert [("keys", b"\x1b[5;2~")] == tapped(b"\x1b[5;2~", aim=aimed(alternate=True))[0].said
    assert [("keys", b"a"), ("read", None), ("keys", b"b")] == tapped(b"a\x1b[1;2Hb")[0].said
    assert [("keys", b"\x1b[1;2H")] == tapped(b"\x1b[1;2H", aim=aimed(alternate=True))[0].said


SPOKEN = {
    ("a", "a"): b"a",
    ("A", "A"): b"A",
    ("plus", "+"): b"+",
    ("enter", "\r"): b"\r",
    ("space", " "): b" ",
    ("escape", "\x1b"): b"\x1b",
    ("shift+tab", None): b"\x1b[Z",
    ("backspace", "\x7f"): b"\x7f",
    ("ctrl+c", "\x03"): b"\x03",
    ("ctrl+right_square_bracket", "\x1d"): b"\x1d",
    ("alt+b", None): b"\x1bb",
    ("up", None): b"\x1b[A",
    ("ctrl+left", None): b"\x1b[1;5D",
    ("pagedown", None): b"\x1b[6~",
    ("f5", None): b"\x1b[15~",
    ("f25", None): b"",
}


@pytest.mark.parametrize(("key", "data"), SPOKEN.items(), ids=lambda value: repr(value))
def test_without_a_tap_textuals_keys_are_used(key: tuple[str, str | None], data: bytes) -> None:
    assert data == encode_key(*key)
