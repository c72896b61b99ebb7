"""Where the terminal is not UTF-8, no shape is drawn that it cannot show."""

import pytest
from rich.segment import Segment
from textual.color import Color

from kasmon.model.formatting import GLYPHS
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.textual_ext.line_filters import AsciiFilter
from kasmon.tui.theme.look import MARKS
from tests.support.dashboard_scenes import kasmon, keys
from tests.support.sample_fleet import asking, fleet
from tests.support.tui.fake_gateway import text_of


def drawn(text: str) -> str:
    return "".join(segment.text for segment in AsciiFilter().apply([Segment(text)], Color(0, 0, 0)))


def test_every_shape_of_ours_has_one_as_wide_and_letters_of_any_script_stay_what_they_are() -> None:
    ours = "".join([*(shape for shape, _ in GLYPHS.values()), *(mark for mark, _ in MARKS.values()), "╭─╮│▌▁█…·❯✓⎿"])
    assert drawn(ours).isascii()
    assert len(ours) == len(drawn(ours))

    assert "Rosé 日本語 +" == drawn("Rosé 日本語 ✓")


@pytest.mark.parametrize(("encoding", "utf8"), [("UTF-8", True), ("ANSI_X3.4-1968", False), ("ISO-8859-1", False)])
def test_the_locale_decides_also_if_python_itself_writes_utf_8(
    monkeypatch: pytest.MonkeyPatch, encoding: str, utf8: bool
) -> None:
    """Under LC_ALL=C Python is in its UTF-8 mode, whatever the terminal shows."""
    monkeypatch.setattr("locale.getencoding", lambda: encoding)

    assert utf8 is kasmon(fleet()).utf8


@pytest.mark.parametrize("pressed", [("m",), ("question_mark",), ("ctrl+p",), ("enter",), ("ctrl+f",), ("I",)])
async def test_no_screen_draws_other_shapes(pressed: tuple[str, ...]) -> None:
    app = kasmon(fleet(asking("fix-auth")), settings=DashboardSettings(ascii="yes"))
    async with app.run_test(size=(80, 24)) as pilot:
        await keys(*pressed)(pilot)

        assert "" == "".join(character for character in text_of(app) if not character.isascii())
