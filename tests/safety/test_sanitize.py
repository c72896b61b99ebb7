"""Foreign text is harmless to look at, and what somebody decides on cannot hide anything."""

import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kasmon.sanitize import clean_block, clean_line, has_hidden, outgoing, redact, visible

BIDI_CONTROL = [chr(c) for c in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
FILLERS = [chr(c) for c in (0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800)]
ZERO_WIDTH = [chr(c) for c in (0x200B, 0x200C, 0x200D, 0x2060, 0x2064, 0xFEFF, 0xAD, 0x34F, 0xFE00, 0xFE0F, 0xE0100)]
TAGS = [chr(c) for c in (0xE0000, 0xE0001, 0xE0041, 0xE007F)]
PLAIN = "rm -rf build"

SEQUENCES = {
    "colour": ("a\x1b[31mb\x1b[0m", "ab"),
    "colour with colons": ("a\x1b[38:2::1:2:3mb", "ab"),
    "private mode": ("a\x1b[?1049hb", "ab"),
    "device report": ("a\x1b[6nb", "ab"),
    "control inside a sequence": ("a\x1b[3\x071mb", "ab"),
    "8-bit CSI": ("a\x9b31mb", "ab"),
    "clipboard, ended by BEL": ("a\x1b]52;c;cm0gLXJm\x07b", "ab"),
    "clipboard, ended by ST": ("a\x1b]52;c;cm0gLXJm\x1b\\b", "ab"),
    "clipboard, 8-bit": ("a\x9d52;c;cm0gLXJm\x9cb", "ab"),
    "hyperlink": ("a\x1b]8;;file:///etc/passwd\x1b\\b\x1b]8;;\x1b\\", "ab"),
    "title that never ends": ("a\x1b]0;still the title\nb", "a\nb"),
    "title of screen": ("a\x1bkname\x1b\\b", "ab"),
    "DECRQSS": ('a\x1bP$q"p\x1b\\b', "ab"),
    "8-bit DCS": ("a\x90$qm\x9cb", "ab"),
    "tmux passthrough": ("a\x1bPtmux;\x1b\x1b]52;c;cm0=\x07\x1b\\b", "ab"),
    "kitty graphics": ("a\x1b_Gf=24;AAAA\x1b\\b", "ab"),
    "8-bit APC": ("a\x9fGf=24;AAAA\x9cb", "ab"),
    "privacy message": ("a\x1b^secret\x1b\\b", "ab"),
    "start of string": ("a\x1bXpayload\x1b\\b", "ab"),
    "8-bit SOS and PM": ("a\x98one\x9c\x9etwo\x9cb", "ab"),
    "cancelled in the middle": ("a\x1bPpayload\x18b", "ab"),
    "character set": ("a\x1b(0b", "ab"),
    "reset": ("a\x1bcb", "ab"),
    "escape at the end": ("ab\x1b", "ab"),
    "two escapes": ("a\x1b\x1b[31mb", "ab"),
    "answerback, bell, backspace, delete": ("a\x05\x07\x08\x7fb", "ab"),
    "shift out": ("a\x0e\x0fb", "ab"),
}

ATTACKS = [
    PLAIN,
    *(f"rm -rf{hidden} build" for hidden in (*BIDI_CONTROL, *FILLERS, *ZERO_WIDTH, *TAGS)),
    *("rm -rf" + space + "build" for space in "\t\n\r\v\f\x85\xa0\u2003\u2028\u3000"),
    *(
        PLAIN + end
        for end in (" ", "\n", "\n\n", "\r", "\r\n", "\x00", "\x1b[8m; curl evil", "\x08\x08\x08\x08\x08evil")
    ),
    *(start + PLAIN for start in ("\n", "\r", " ", "\ufeff")),
    "rm -rf ⟨U+202E⟩ build",
    "rm -rf ␤ build",
    "rm -rf build␤",
    "rm -rf build␠",
    "rm -rf build␍",
    "rm␉-rf build",
    "rm -rf ⟨hidden: 40 characters⟩",
    "caf\u00e9",
    "cafe\u0301",
    "\u212a",
    "K",
    "rm\u0335 -rf build",
    "\ue000",
    "\U000f0000",
    "\ud800",
    "\udcff",
]


def is_forbidden(character: str) -> bool:
    """What may never come out of cleaning, told by Unicode instead of by our tables."""
    return character not in "\n\t\u200d" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def has_joiners(letter: str) -> bool:
    """Whether the script of *letter* may have joiners."""
    return letter >= "\u0600" and not unicodedata.name(letter, "").startswith(("LATIN", "GREEK", "CYRILLIC"))


def without_written_marks(text: str) -> str:
    """*text* without the invisible characters that its script writes, by Unicode's names and bidirectional classes."""
    kept = []
    for at, character in enumerate(text):
        before, after = text[max(0, at - 1) : at], text[at + 1 : at + 2]
        line = text[:at].rpartition("\n")[2] + text[at:].partition("\n")[0]
        match character:
            case "\u200c" | "\u200d":
                is_written = has_joiners(before) or (bool(before.strip()) and has_joiners(after))
            case "\u200e" | "\u200f":
                is_written = any(0x590 <= ord(c) for c in line if c not in "\u200e\u200f")
            case "\u00ad":
                word = "".join(c for c in text[:at] if unicodedata.category(c)[0] != "M")
                is_written = word[-1:].isalpha() and after.isalpha()
            case _:
                is_written = False
        if not is_written:
            kept.append(character)
    return "".join(kept)


@pytest.mark.parametrize(("foreign", "harmless"), SEQUENCES.values(), ids=SEQUENCES)
def test_an_escape_sequence_goes_with_its_payload(foreign: str, harmless: str) -> None:
    assert harmless == clean_block(foreign)
    assert harmless.replace("\n", " ") == clean_line(foreign)


def test_no_single_control_or_invisible_character_is_kept() -> None:
    """Every code point, so that a new Python's Unicode tables find what ours lack."""
    alive = [c for c in map(chr, range(0x100)) if is_forbidden(clean_block(c)[:1] or " ")]
    for start in range(0x100, sys.maxunicode + 1, 0x100):  # each in a line of its own
        alive += filter(is_forbidden, clean_block("\n".join(map(chr, range(start, start + 0x100)))))
    assert [] == alive
    assert [] == [c for c in (*BIDI_CONTROL, *FILLERS, *ZERO_WIDTH, *TAGS) if c in clean_block(f"1{c}2")]


@pytest.mark.parametrize("character", [*BIDI_CONTROL, *ZERO_WIDTH, *TAGS, "\ud800", "\ufdd0", "\U0001ffff"], ids=ascii)
def test_an_invisible_character_leaves_a_mark(character: str) -> None:
    assert "1\ufffd2" == clean_line(f"1{character}2") == clean_block(f"1{character}2")


WRITTEN = {
    "Persian, a joiner's absence in a word": "می\u200cخواهم نام\u200cها را عوض کنم",
    "Persian, a joiner at the end of a word": "ه\u200d ۱۳۵۷",
    "Hindi": "क्\u200dष और क्\u200cष",
    "Sinhala": "ශ්\u200dරී ලංකා",
    "Malayalam, a joiner at the end of a word": "അവൻ അവന്\u200d",
    "Hebrew, a mark behind punctuation": "שלום!\u200f",
    "Hebrew beside Latin": "ב-C++\u200e, כן",
    "Arabic, a mark before a word": "\u200fمرحبا",
    "Persian, an ending behind a Latin word": "API\u200cها",
    "Persian, an ending behind a number": "5\u200cساله",
    "Persian, an ending behind code": "`config.py`\u200cها",
    "Persian, an ending behind bold text": "**می**\u200cخواهم",
    "Hebrew, a mark far from its letters": "שלום and a long way\u200e",
    "soft hyphens": "Donau\u00addampf\u00adschiff",
    "a soft hyphen behind a combining mark": "cafe\u0301\u00adteria, Lu\u0308\u0301\u00adfter",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_an_invisible_character_of_its_script_is_kept_and_named_on_a_card(text: str) -> None:
    assert text == clean_line(text) == clean_block(text)
    assert has_hidden(text)
    assert not {"\u200c", "\u200d", "\u200e", "\u200f", "\u00ad"} & set(visible(text))


@pytest.mark.parametrize(
    "text",
    [
        "rm\u200c -rf",
        "a\u200db",
        "می\u200c\u200cخواهم",
        "\u200cمی",
        "x\u200fy",
        "שלום\u200f\u200f",
        "a\u200c\u200cها",
        " \u200cها",
        "\u0301\u00ada",
        "\u3164\u00ada",
        "a\u00ad\u00adb",
        "\u00ada",
        "1\u00ad2",
        "می\u202eخواهم",
    ],
    ids=ascii,
)
def test_an_invisible_character_outside_its_script_leaves_a_mark(text: str) -> None:
    assert "\ufffd" in clean_line(text)
    assert "\ufffd" in clean_block(text)


def test_a_direction_mark_in_a_line_without_such_letters_leaves_a_mark() -> None:
    assert "שלום\nanother line\ufffd" == clean_block("שלום\nanother line\u200e")


@pytest.mark.parametrize(
    "emoji", ["👩\u200d🔬", "❤\ufe0f\u200d🔥", "☁\ufe0f", "☎\ufe0e", "1\ufe0f\u20e3", "👍🏽", "🇩🇪"]
)
def test_emoji_stay_whole_and_are_nothing_hidden(emoji: str) -> None:
    assert emoji == clean_line(emoji) == clean_block(emoji)
    assert not has_hidden(emoji)


@pytest.mark.parametrize("text", ["a\ufe0f\u200d🙂", "🙂\u200d\u200d🙂", "1\ufe0f", "🙂\ufe0f\ufe0f", "🙂\u200da"])
def test_joiners_outside_an_emoji_leave_a_mark(text: str) -> None:
    assert "\ufffd" in clean_line(text)
    assert has_hidden(text)


def test_a_line_is_one_line_and_a_block_keeps_its_lines() -> None:
    foreign = "one\r\ntwo\rthree\u2028four\tfive"

    assert "one two three four five" == clean_line(foreign)
    assert "one\ntwo\nthree\nfour\tfive" == clean_block(foreign)


TEXT = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\x1b[]P_\\;0m\x07\x9b\x9c\x9d\n\r\t \u200d\ufe0f\u20e31🙂⟨⟩␤"),
        st.sampled_from("\u200c\u200d\u200e\u200f\u00adمیשलक्a"),
        st.integers(0, 0x10FFFF).map(chr),
    )
)


@given(TEXT)
@example("a\ufe0f\u200d🙂")
@example("🙂\x00\u200d\x00🙂")
@example("\x1b\x1b[\x9b\x1b]")
@example("¼\u00adA")
def test_cleaning_is_idempotent_and_removes_all_forbidden_characters(text: str) -> None:
    for clean in (clean_line, clean_block):
        once = clean(text)

        assert once == clean(once)
        assert [] == [c for c in without_written_marks(once) if is_forbidden(c)]
        assert not has_hidden(without_written_marks(once))
    assert not {"\n", "\t"} & set(clean_line(text))


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_printable_text_stays_as_it_is(text: str) -> None:
    printable = "".join(c for c in text if c not in FILLERS and c != "\U0001d159")

    assert printable == clean_line(printable) == clean_block(printable)


def test_two_different_attacks_never_look_equal() -> None:
    """Not even where a terminal puts a letter and its accent together."""
    assert len(set(ATTACKS)) == len({unicodedata.normalize("NFC", visible(attack)) for attack in ATTACKS})


@given(TEXT, TEXT)
@example("⟨U+202E⟩", "\u202e")
@example("a\n", "a␤")
def test_two_different_texts_never_look_equal(one: str, other: str) -> None:
    assert (one == other) == (visible(one) == visible(other))


@given(TEXT)
def test_shown_text_is_visible(text: str) -> None:
    assert [] == [c for c in visible(text) if c != "\n" and not c.isprintable()]
    assert visible(text).strip("\n ") == visible(text).lstrip(" ")


def test_hidden_characters_are_named_at_their_position() -> None:
    assert "rm ⟨U+202E⟩dliub⟨U+200B⟩ ⟨U+001B⟩[8m" == visible("rm \u202edliub\u200b \x1b[8m")
    assert "␤make␉all␠\ndone␍␤" == visible("\nmake\tall \ndone\r\n")


@pytest.mark.parametrize(
    "text", [*(f"a{c}b" for c in (*BIDI_CONTROL, *FILLERS, *ZERO_WIDTH, *TAGS)), "\x1b[8m", "a\rb"]
)
def test_hidden_characters_are_reported(text: str) -> None:
    assert has_hidden(text)


@pytest.mark.parametrize("text", [PLAIN, "", "a\tb\r\nc\n", "übergrößen — «ok» 你好", "שלום", "\ue0b0 main"])
def test_ordinary_text_hides_nothing(text: str) -> None:
    assert not has_hidden(text)


# Put together here, so that no scanner takes these lines for real secrets.
SECRETS = {
    "bearer": ("Authorization: Bearer ", "abcdefghijklmnop.qrstuvwxyz"),
    "anthropic": ("", "sk-" + "ant-api03-abcdefghijklmnopqrst"),
    "github": ("", "ghp" + "_" + "abcdefghijklmnopqrstuvwxyz0123456789"),
    "github, fine-grained": ("", "github" + "_pat_" + "abcdefghijklmnopqrstuvwxyz"),
    "gitlab": ("", "glpat" + "-abcdefghijklmnopqrst"),
    "aws": ("", "AKIA" + "ABCDEFGHIJKLMNOP"),
    "google": ("", "AIza" + "a" * 35),
    "slack": ("", "xoxb" + "-123456789012-abcdef"),
    "npm": ("", "npm" + "_" + "a" * 36),
    "pypi": ("", "pypi" + "-AgEIcHlwaS5vcmcabcdef"),
    "hugging face": ("", "hf" + "_" + "a" * 30),
    "web token": ("", "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4"),
}


@pytest.mark.parametrize(("before", "secret"), SECRETS.values(), ids=SECRETS)
def test_a_token_is_hidden_by_its_format(before: str, secret: str) -> None:
    shown, count = redact(f"curl -H '{before}{secret}' example.org\n")

    assert f"curl -H '{before}⟨hidden: {len(secret)} characters⟩' example.org␤" == shown
    assert 1 == count


def test_the_lines_of_a_private_key_are_hidden() -> None:
    lines = ["MIIEpAIBAAKCAQEA" * 4] * 3
    key = "\n".join(("-----BEGIN " + "RSA PRIVATE KEY-----", *lines, "short==", "-----END RSA PRIVATE KEY-----"))

    for text in (key, key.replace("\n", "\\n")):
        shown, count = redact(text)
        assert 1 == count
        assert lines[0] not in shown


def test_no_command_hides_behind_the_shape_of_a_secret() -> None:
    """A dialog that hides it would have it approved unseen."""
    header = "-----BEGIN " + "PRIVATE KEY-----"
    for evil in ("; rm -rf /", "\nsudo reboot\n", "$(curl evil)", " && halt", "`id`", '"; evil'):
        for shape in ("sk-" + "a" * 30, "ghp" + "_" + "a" * 36, "Bearer " + "a" * 30, header + "\n" + "a" * 64, header):
            assert visible(evil.strip()) in redact(shape + evil + " ")[0]


def test_known_values_are_hidden_anywhere() -> None:
    shown, count = redact(
        "deploy --key hunter2hunter2 --again hunter2 --to prod", secret_values=["hunter2", "hunter2hunter2", "prod"]
    )

    assert "deploy --key ⟨hidden: 14 characters⟩ --again ⟨hidden: 7 characters⟩ --to prod" == shown
    assert 2 == count


def test_a_mark_of_a_host_is_shown_unchanged_and_counted() -> None:
    """No agent can write that: see tests/host/journal/test_redaction.py."""
    mark, key = "⟨hidden: 40 characters⟩", "sk-" + "a" * 30

    assert (mark, f"run {mark}␠") == (visible(mark), visible(f"run {mark} "))
    assert (f"{mark} ⟨hidden: 33 characters⟩", 2) == redact(f"{mark} {key}")


@pytest.mark.parametrize(
    "text", ["⟨hidden: 40", "⟨hidden: 4x0 characters⟩", "⟨hidden: -1 characters⟩", "⟨hidden:  characters⟩"]
)
def test_text_that_resembles_a_mark_is_shown_character_by_character(text: str) -> None:
    assert (f"⟨U+27E8⟩{text[1:]}", 0) == redact(text)


@given(TEXT)
def test_without_secrets_redaction_equals_showing(text: str) -> None:
    assert (visible(text), 0) == redact(text)


HEAVY = [
    "\x1b]",
    "\x1b[",
    "\x1b",
    "\n",
    "\r\n",
    " ",
    "e\u0301",
    "🙂\u200d",
    "eyJ",
    "eyJaaaaaaaa.",
    "Bearer ",
    "sk-",
    "\u202e",
    "\x9d",
]


@pytest.mark.parametrize("piece", [*HEAVY, "-----BEGIN " + "PRIVATE KEY-----\n", "1\ufe0f"], ids=ascii)
@pytest.mark.timeout(20)
def test_large_texts_are_cleaned_quickly(piece: str) -> None:
    """Quadratic work on this much text would take minutes; the timeout is the assertion."""
    text = "x" + piece * (200_000 // len(piece)) + "y"

    assert clean_line(text) is not None
    assert clean_block(text) is not None
    assert redact(text, ["secret-value"]) is not None
    assert has_hidden(text) is not None


# A person's own words.

OWN = {
    "Persian, with its joiner's absence": "می\u200cخواهم نام‌ها را عوض کنم",
    "Hindi, with joiners": "क्\u200dष और क्\u200cष",
    "Sinhala": "ශ්\u200dරී ලංකා",
    "Hebrew beside Latin, with marks of direction": "\u200fשלום\u200e abc \u2067שלום\u2069",
    "Mongolian, with a variant": "ᠠ\u180b",
    "Hangul filler": "\u3164",
    "emoji": "👩\u200d🔬 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 🏴\U000e0067\U000e007f",
    "soft hyphen, spaces, separators": "Wort\u00adende\u00a0\u2003\u2028\ufeff",
    "braille blank, private characters": "\u2800\ue0b0",
    "accents in either form": "café cafe\u0301",
    "lines and tabs": "\tone\n\n two \n",
}


@pytest.mark.parametrize("text", OWN.values(), ids=OWN)
def test_a_users_own_text_is_sent_unchanged(text: str) -> None:
    assert text == outgoing(text)


DANGEROUS = {
    "the end of a paste": ("a\x1b[201~b", "ab"),
    "a coloured screen": ("\x1b[1;31mred\x1b[0m\x1b(B plain", "red plain"),
    "a link": ("\x1b]8;;https://example.org\x1b\\here\x1b]8;;\x07", "here"),
    "a sequence that does not end": (
        "\x1b]0;the rest of the line\nand the next",
        "]0;the rest of the line\nand the next",
    ),
    "an escape before a word": ("\x1bHello", "Hello"),
    "an escape within an escape": ("\x1b\x1b[31m[201~", "[201~"),
    "8-bit controls": ("a\x9b201~ \x9dquoted\x9c", "a201~ quoted"),
    "keys": ("a\x00\x03\x04\x1a\x7f\x08b", "ab"),
    "line breaks of other systems": ("a\r\nb\rc\x0cd\x85e", "a\nb\nc\nd\ne"),
    "half a pair": ("a\ud800b\udcff", "a\ufffdb\ufffd"),
}


@pytest.mark.parametrize(("text", "safe"), DANGEROUS.values(), ids=DANGEROUS)
def test_control_characters_of_a_users_text_are_removed(text: str, safe: str) -> None:
    assert safe == outgoing(text)


@given(TEXT)
def test_control_characters_are_removed_and_the_rest_is_kept(text: str) -> None:
    out = outgoing(text)

    assert [] == [c for c in out if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs")]
    assert out == outgoing(out)
    if not any(c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs") for c in text):
        assert text == out
