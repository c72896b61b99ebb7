"""Which cells a text fills: as tmux itself says, for everybody who shows it."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unicodedata import category

import pytest
from rich.cells import cell_len

from kasmon.host.terminal.row_styles import cells, placed
from kasmon.tmux.server import TmuxServer
from kasmon.tmux.server_config import JOINS_SINCE, parse
from tests.support.wait import until

MEASURER = r"""
import json, os, re, sys, tty
tty.setraw(0)
widths = []
for text in json.load(open(sys.argv[1])):
    os.write(1, b"\r\x1b[K" + text.encode() + b"\x1b[6n")
    answer = b""
    while not answer.endswith(b"R"):
        answer += os.read(0, 64)
    widths.append(int(re.search(rb";(\d+)R", answer)[1]) - 1)
json.dump(widths, open(sys.argv[2] + "~", "w"))
os.rename(sys.argv[2] + "~", sys.argv[2])
"""
"""Asks its terminal after each text where the cursor is now."""

JOINED = (
    "\u2764\ufe0f",
    "\u26a0\ufe0f x",
    "1\ufe0f\u20e3",
    "\U0001f44d\U0001f3fd",
    "\U0001f468\U0001f3fd\u200d\U0001f4bb|",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\U0001f3f3\ufe0f\u200d\U0001f308|",
    "\U0001f1e9\U0001f1ea",
    "\U0001f1e9",
    "\U0001f1e9\U0001f1ea\U0001f1eb",
    "e\u0301",
    "a\u200db",
    "a\u200d\u65e5",
    "\u65e5\u0301",
    "\u0915\u093f",
    "\u0e01\u0e47",
    "\u1112\u1161\u11ab",
    "a\u202eb\u202c",
    "\ufeffa",
    "a\u200bb",
    "x\xady",
    "\u0301a",
    "\U0001f3fd",
    "\u3164|",
    "\u2630|",
)
BLOCKS = (range(0xA1, 0x3400), range(0x1F000, 0x1FB00))
SINGLE = tuple(
    f"x{character}"
    for block in BLOCKS
    for character in map(chr, block)
    if category(character) not in ("Cc", "Cn", "Co", "Cs")
)


@pytest.fixture(scope="module")
def widths() -> Iterator[dict[str, int]]:
    """How many cells tmux moves its cursor for each text."""
    folder = Path(tempfile.mkdtemp(prefix="kmw", dir="/tmp"))
    server = TmuxServer(folder / "t.sock")
    try:
        if parse(f"tmux {server.version()}") >= JOINS_SINCE:
            pytest.skip("this tmux joins characters")
        texts = (*JOINED, *SINGLE)
        (folder / "texts").write_text(json.dumps(texts))
        server.start()
        server.create("abcdefgh", [sys.executable, "-c", MEASURER, str(folder / "texts"), str(folder / "widths")])
        until((folder / "widths").exists, 60.0)
        yield dict(zip(texts, json.loads((folder / "widths").read_text()), strict=True))
    finally:
        server.kill_server()
        shutil.rmtree(folder)


def test_cells_are_counted_as_tmux_counts_them_and_shown_as_wide_on_the_dashboard(widths: dict[str, int]) -> None:
    assert {} == {text: width for text, width in widths.items() if sum(size for _, size in cells(text)) != width}
    assert {} == {text: width for text, width in widths.items() if cell_len(placed(text)) != width}


def test_a_text_that_fits_is_shown_whole_and_otherwise_its_beginning() -> None:
    assert "\u26a0 warn" == placed("\u26a0\ufe0f warn")
    assert "\U0001f44d  |" == placed("\U0001f44d\U0001f3fd|")
    assert "e\u0301 \U0001f1e9\U0001f1ea" == placed("e\u0301 \U0001f1e9\U0001f1ea")
    assert "ab" == placed("a\u202e\u200bb")


def test_a_tmux_that_joins_gives_emoji_two_cells_and_shows_them_whole() -> None:
    for text in (
        "\u26a0\ufe0f",
        "\U0001f44d\U0001f3fd",
        "\U0001f3f3\ufe0f\u200d\U0001f308",
        "\U0001f1e9\U0001f1ea",
        "1\ufe0f\u20e3",
    ):
        assert [(text, 2)] == list(cells(text, joins=True))
        assert text == placed(text, joins=True)
