"""What lies over the dashboard: cards and dialogs."""

from textual.screen import ModalScreen

from kasmon.tui.look import Look


class Overlay(ModalScreen[None]):
    """Takes the keyboard while it is there; a theme that changes meanwhile changes it too."""

    look: Look

    def dress(self, look: Look) -> None:
        """Draw with *look* from now on."""
        self.look = look
