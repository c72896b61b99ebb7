"""The pictures of the documents: `make screenshots` writes `screenshots/*.svg`. From values, never from live agents."""

import asyncio
import os
import re
from functools import cache
from pathlib import Path

from tests.support.dashboard_scenes import SCENES

FOLDER = Path(__file__).parents[2] / "screenshots"
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
TOUR = ("list-120x40", "card-command", "inside-structured-120x40", "board-120x40", "sandboxes-120x40")
"""The scenes of the README's moving picture, in order; all of one size."""
FRAME_S = 3


@cache
def draw_scene(name: str) -> str:
    """The scene as SVG, drawn once: several pictures show some of them."""
    return asyncio.run(_draw(name))


async def _draw(scene_name: str) -> str:
    scene = SCENES[scene_name]
    async with (app := scene.app()).run_test(size=scene.size) as pilot:
        await scene.act(pilot)
        return app.export_screenshot(title="kasmon", simplify=True)


def draw(name: str) -> str:
    """The picture as SVG; the same values give the same bytes."""
    return draw_tour() if name == "tour" else _drawn(PICTURES[name], name)


def _drawn(scene: str, name: str) -> str:
    """The scene as SVG, with ids and classes that begin with *name*."""
    return re.sub(r"terminal-\d+", f"kasmon-{name}", draw_scene(scene))


def draw_tour() -> str:
    """One SVG that shows the scenes of `TOUR` one after the other, by CSS alone.

    A reader that asks for less motion sees the first scene.
    """
    frames = [_drawn(scene, f"tour-{number}") for number, scene in enumerate(TOUR)]
    (box,) = {re.findall(r'viewBox="[^"]*"', frame)[0] for frame in frames}
    delays = "\n".join(
        f".kasmon-frame-{number} {{ animation-delay: {number * FRAME_S}s }}" for number in range(len(TOUR))
    )
    shown = "\n".join(
        f'<g class="kasmon-frame kasmon-frame-{number}">\n{frame}\n</g>' for number, frame in enumerate(frames)
    )
    return f"""<svg {box} xmlns="http://www.w3.org/2000/svg">
<style>
@keyframes kasmon-tour {{ 0% {{ visibility: visible }} {100 / len(TOUR):g}% {{ visibility: hidden }} }}
.kasmon-frame {{ visibility: hidden; animation: kasmon-tour {len(TOUR) * FRAME_S}s step-end infinite }}
{delays}
@media (prefers-reduced-motion) {{
.kasmon-frame {{ animation: none }}
.kasmon-frame-0 {{ visibility: visible }}
}}
</style>
{shown}
</svg>
"""


def stored(name: str) -> str:
    """The picture that the documents show now; empty if there is none."""
    path = FOLDER / f"{name}.svg"
    return path.read_text("utf-8") if path.exists() else ""


def main() -> None:
    """Draw all of them."""
    os.environ.pop("NO_COLOR", None)
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}  # whatever the caller's terminal is
    FOLDER.mkdir(exist_ok=True)
    for name in (*PICTURES, "tour"):
        (FOLDER / f"{name}.svg").write_text(draw(name), "utf-8")
        print(f"screenshots/{name}.svg")


if __name__ == "__main__":
    main()
