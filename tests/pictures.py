"""The README's pictures: `python -m tests.pictures` writes `screenshots/*.svg`. From values, never from live agents."""

import asyncio
import os
import re
from pathlib import Path

from tests.scenes import SCENES

FOLDER = Path(__file__).parent.parent / "screenshots"
PICTURES = {
    "fleet": "list-120x40",
    "wide": "list-160x50",
    "waves": "waves-120x40",
    "board": "board-120x40",
    "sandboxes": "sandboxes-120x40",
    "permission": "card-command",
    "diff": "card-diff-160x50",
    "session": "inside-structured-120x40",
    "question": "card-question",
    "dawn": "theme-rose-pine-dawn",
}
"""The picture's name -> its scene."""


async def _draw(scene_name: str) -> str:
    scene = SCENES[scene_name]
    app = scene.app()
    async with app.run_test(size=scene.size) as pilot:
        await scene.act(pilot)
        return app.export_screenshot(title="kasmon", simplify=True)


def draw(name: str) -> str:
    """The picture as SVG; the same values give the same bytes."""
    svg = asyncio.run(_draw(PICTURES[name]))
    return re.sub(r"terminal-\d+", f"kasmon-{name}", svg)


def stored(name: str) -> str:
    """The picture that the README shows now; empty if there is none."""
    path = FOLDER / f"{name}.svg"
    return path.read_text("utf-8") if path.exists() else ""


def main() -> None:
    """Draw all of them."""
    os.environ.pop("NO_COLOR", None)
    FOLDER.mkdir(exist_ok=True)
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(draw(name), "utf-8")
        print(f"screenshots/{name}.svg")


if __name__ == "__main__":
    main()
