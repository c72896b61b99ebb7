"""A look at a link before it is opened: all of its address, with nothing in it hidden."""

from typing import TYPE_CHECKING

from kasmon.clean import visible
from kasmon.tui.dialogs import Question, Sure
from kasmon.tui.links import is_link, warnings
from kasmon.tui.world import OpenLink

if TYPE_CHECKING:
    from kasmon.tui.app import Kasmon


def look_at(app: "Kasmon", address: str) -> None:
    """Show *address*, if it is a link at all; it is opened by the key that says so and by nothing else."""
    if is_link(address):
        question = Question("Open a link", (visible(address), *warnings(address)), "open it")
        wanted = OpenLink(address=address)
        app.push_screen(Sure(app.look, app.keys, app.clock, question, lambda dialog: dialog.want(wanted)))
