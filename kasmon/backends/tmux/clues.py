"""What is known of one agent from files and processes: its registry, its hooks' notes, who has its terminal. Blocks.

`look` runs in a thread, one at a time for each agent. It never writes anything of the agent's.
"""

from pathlib import Path
from typing import Final

from kasmon.backends.tmux import hooks, registry
from kasmon.backends.tmux.hooks import Notes
from kasmon.backends.tmux.inside import Inside
from kasmon.backends.tmux.processes import SHELLS, Table
from kasmon.backends.tmux.registry import Word
from kasmon.backends.tmux.rollout import rollout
from kasmon.model.event import SignalSeen

REGISTERED: Final = frozenset({"claude"})
"""Programs that keep a registry."""


class Clues:
    """Of the agent *program*, started by process *pid* in a pane, with its session's folder."""

    def __init__(
        self, program: str, pid: int, folder: Path, generation: int, nonce: str, inside: Inside | None = None
    ) -> None:
        """*inside*: where it leaves things outside its sandbox; None where it has none."""
        self.version = ""
        """What its registry says of its version."""
        self.conversation = ""
        """By which its conversation can be gone on with, as it says itself; empty before that is known."""
        self._program, self._pid = program, pid
        self._inside = inside
        self._notes = Notes(folder / hooks.FILE if inside is None else inside.notes, generation, nonce, pid)
        self._pids: list[int] = [pid]
        self._folder: Path | None = None
        self._file: Path | None = None
        self._changed = 0
        self._was_agent = False

    def look(self, at: float, table: Table | None) -> list[SignalSeen]:
        """What each source says that may be new, as seen *at*; *table* where it is time to look at processes."""
        signals = self._processes(table, at) if table is not None else []
        if (word := self._registered()) is not None:
            self.version = word.version or self.version
            self.conversation = word.conversation or self.conversation
            signals.append(SignalSeen(at=at, source="registry", value=word.value, asking=word.asking, text=word.text))
        for said in self._notes.new()[-1:]:
            signals.append(
                SignalSeen(at=at, source="hook", value=said.value, asking=said.asking, text=said.text, rule=said.event)
            )
        return signals

    def _processes(self, table: Table, at: float) -> list[SignalSeen]:
        self._pids = [self._pid, *table.below(self._pid)]
        if self._program == "codex":
            self.conversation = rollout(self._pids) or self.conversation
        is_back = None if self._program in SHELLS else table.is_back_at_shell(self._pid)
        if is_back is None or (is_back and not self._was_agent):
            return []
        self._was_agent = self._was_agent or not is_back
        return [SignalSeen(at=at, source="process", value="shell" if is_back else "agent")]

    def _registered(self) -> Word | None:
        """What the agent's registry says; None where it has none, or nothing has changed."""
        if self._file is None:
            if self._program not in REGISTERED and self._program not in SHELLS:
                return None
            self._folder = self._folder or self._registry()
            self._file = registry.found(self._folder, self._names()) if self._folder else None
            if self._file is None:
                self._folder = None if self._program in SHELLS else self._folder
                return None
        changed = registry.changed(self._file)
        if changed == self._changed:
            return None
        self._changed = changed
        word = registry.read(self._file, self._names().get(self._file.stem))
        if not changed:
            self._file = None
        return word

    def _registry(self) -> Path | None:
        """The folder of its registry, where that is known."""
        if self._inside is None:
            return registry.folder_of(registry.variables_of(self._pids[-1]))
        return registry.folder_of({"HOME": str(self._inside.home)})

    def _names(self) -> dict[str, int]:
        """Its processes by the names that they have for themselves: in a sandbox they are counted anew."""
        if self._inside is None:
            return {str(pid): pid for pid in self._pids}
        from kasmon.sandbox.jail.process import name_inside  # only where there is a sandbox

        return {name: pid for pid in self._pids if (name := name_inside(pid))}
