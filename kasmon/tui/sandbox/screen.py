"""The screen of one session's sandbox: its state, its runs, its checkpoints, and blocked hosts."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from kasmon.errors import KasmonError
from kasmon.model.commands import Checkpoint, Pause, SandboxCommand
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.transcript.text import Token
from kasmon.sandbox.network.denials import Denial
from kasmon.supervisor.sandboxes.history import SandboxHistory
from kasmon.tui.action import Action, KeyContext
from kasmon.tui.app_protocols import dashboard_of
from kasmon.tui.clock import Clock
from kasmon.tui.error_text import what_failed
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.sandbox.entries import SandboxEntry, about, entries, head, point_of, row, turn_of
from kasmon.tui.sandbox.status import can_pause, can_sleep
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import TOKENS, ThemeStyles, width_of
from kasmon.tui.widgets.reader import Reader, Sentences
from kasmon.tui.widgets.text_lines import PICKS, DrawnLine, TextLines, key_line

ROOMY: Final = 140
"""From this width on, an entry's details are beside the list, else below it."""
SELDOM: Final = (Keys.BOX_REPLAY, Keys.BOX_DIFF, Keys.BOX_KEEP, Keys.BOX_RESTORE, Keys.BOX_FREEZE)
"""Actions that the bottom line leaves out, in this order, if it lacks space; the help lists them."""
OF_ENTRY: Final = frozenset({Keys.BOX_DIFF, Keys.BOX_RESTORE, Keys.BOX_FORK, Keys.BOX_REPLAY, Keys.BOX_ALLOW})
"""Actions on the chosen entry; not every entry has each."""
OF_INTERPRETERS: Final = frozenset({Keys.BOX_KEEP, Keys.BOX_PAUSE, Keys.BOX_FORK_NOW})
NOTHING: Final = (
    ("Nothing ran here yet.", Token.TEXT),
    ("Each turn is listed with its code and exit code, with checkpoints before and after.", Token.NOTICE),
)
AGENTS: Final = (
    ("An agent runs in this sandbox; its history is in its transcript.", Token.TEXT),
    ("Blocked hosts are listed here.", Token.NOTICE),
)


class SandboxRequests(Protocol):
    """What the screen requests."""

    def show_turn_diff(self, session: Session, turn: int, /) -> None: ...
    def restore(self, session: Session, checkpoint: str, /) -> None: ...
    def ask_fork_name(self, session: Session, checkpoint: str, /, *, replays: bool = False) -> None: ...
    def allow(self, session: Session, host: str, /) -> None: ...
    def send(self, session: Session, command: SandboxCommand, /) -> None: ...
    def pause(self, session: Session, /) -> None: ...
    def resume(self, session: Session, /) -> None: ...


class SandboxScreen(Overlay):
    """The sandbox of *session*; *requests* does what needs more than the screen."""

    contexts = (KeyContext.SANDBOX,)
    DEFAULT_CSS = """
    SandboxScreen { align: left top; background: $background; }
    SandboxScreen #box-middle { layout: vertical; height: 1fr; width: 1fr; }
    SandboxScreen.-beside #box-middle { layout: horizontal; }
    SandboxScreen #box-list { height: 1fr; width: 1fr; }
    SandboxScreen #box-about { height: 45%; min-height: 9; max-height: 100%; width: 1fr; border-top: solid $k-line; }
    SandboxScreen.-beside #box-about { height: 1fr; width: 44%; border-top: none; border-left: solid $k-line; }
    """

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, clock: Clock, session: Session, requests: SandboxRequests
    ) -> None:
        super().__init__()
        self.look, self.keys, self.clock, self.session = look, keys, clock, session
        self.past: SandboxHistory | None = None
        self.entries: tuple[SandboxEntry, ...] = ()
        self.at = 0
        self.head = TextLines(look, "surface", id="box-head")
        self.list = TextLines(look, "background", id="box-list")
        self.reader = Reader(look, background="background", id="box-about")
        self.problem = Sentences(look, id="box-problem")
        self.foot = TextLines(look, "surface", id="box-keys")
        self.handlers = {
            Keys.BOX_DOWN: lambda: self.pick(self.at + 1),
            Keys.BOX_UP: lambda: self.pick(self.at - 1),
            Keys.BOX_TOP: lambda: self.pick(0),
            Keys.BOX_BOTTOM: lambda: self.pick(len(self.entries) - 1),
            Keys.BOX_READ_ON: lambda: self.reader.scroll_pages(1),
            Keys.BOX_READ_BACK: lambda: self.reader.scroll_pages(-1),
            Keys.BOX_DIFF: lambda: requests.show_turn_diff(self.session, self._turn),
            Keys.BOX_RESTORE: lambda: requests.restore(self.session, self._checkpoint),
            Keys.BOX_FORK: lambda: requests.ask_fork_name(self.session, self._checkpoint),
            Keys.BOX_FORK_NOW: lambda: requests.ask_fork_name(self.session, ""),
            Keys.BOX_REPLAY: lambda: requests.ask_fork_name(self.session, self._checkpoint, replays=True),
            Keys.BOX_ALLOW: lambda: requests.allow(self.session, self._host),
            Keys.BOX_KEEP: lambda: requests.send(self.session, Checkpoint()),
            Keys.BOX_FREEZE: lambda: requests.send(self.session, Pause()),
            Keys.BOX_PAUSE: lambda: requests.pause(self.session),
            Keys.BOX_WAKE: lambda: requests.resume(self.session),
            Keys.LEAVE_BOX: self.dismiss,
        }

    def compose(self) -> ComposeResult:
        yield self.head
        with Container(id="box-middle"):
            yield self.list
            yield self.reader
        yield self.problem
        yield self.foot

    def on_mount(self) -> None:
        self.set_interval(1.0, self._draw)
        self._draw()
        self._reload()

    def on_resize(self) -> None:
        self.set_class(self._is_beside, "-beside")
        self.call_after_refresh(self._draw)

    # Content.

    def _reload(self) -> None:
        self.run_worker(self._load(), exclusive=True)

    async def _load(self) -> None:
        gateway = dashboard_of(self).gateway
        try:
            self._show(await gateway.sandbox(self.session.id) if gateway is not None else None)
        except KasmonError as error:
            self.problem.say(*((line, Token.ERROR) for line in what_failed(error).split("\n")))

    def _show(self, past: SandboxHistory | None) -> None:
        """Show *past*; the chosen entry stays chosen."""
        chosen = self.chosen
        self.past, self.entries = past, entries(past) if past is not None else ()
        self.at = self.entries.index(chosen) if self.at and chosen in self.entries else 0
        self.problem.say()
        self._show_details(is_same=chosen is not None and chosen == self.chosen)
        self._draw()

    def follow(self, fleet: Fleet) -> None:
        now = fleet.get(self.session.id)
        if now is None:
            self.dismiss()
        elif now != self.session:
            before, self.session = self.session, now
            self._draw()
            if _refresh_key(before) != _refresh_key(now):
                self._reload()

    # Keys.

    @property
    def chosen(self) -> SandboxEntry | None:
        return self.entries[self.at] if self.at < len(self.entries) else None

    def takes(self, key: events.Key) -> bool:
        row = self.keys.action_of(key.aliases, KeyContext.SANDBOX)
        return row is not None and self.do(row)

    def do(self, action: Action) -> bool:
        """Run *action* if it can be done now; return whether it is one of this screen."""
        if action in OF_INTERPRETERS:
            is_possible = self.session.backend == "interpreter"
        else:
            is_possible = action not in OF_ENTRY or action in self._list_offers()
        if is_possible:
            super().do(action)
        return action in self.handlers

    def pick(self, at: int) -> None:
        """Choose the entry with this index, 0 being the newest; does nothing if there is none."""
        if 0 <= at < len(self.entries):
            self.at = at
            self._show_details()
            self._draw()

    @property
    def _turn(self) -> int:
        """The turn of the chosen entry; 0 for none."""
        return turn_of(self.chosen) if self.chosen is not None else 0

    @property
    def _checkpoint(self) -> str:
        """The checkpoint of the chosen entry; empty for none."""
        return point_of(self.chosen, self.past) if self.chosen is not None and self.past is not None else ""

    @property
    def _host(self) -> str:
        """The host that the chosen entry blocked; empty for none."""
        denial = self.chosen
        return (denial.entry or f"{denial.host}:{denial.port}") if isinstance(denial, Denial) else ""

    def _list_offers(self) -> dict[Action, str]:
        """Return the actions for the chosen entry, each with its label."""
        entry, acts = self.chosen, dict[Action, str]()
        if self._turn:
            acts[Keys.BOX_DIFF] = "diff"
        if self._checkpoint:
            acts |= {Keys.BOX_RESTORE: "restore", Keys.BOX_FORK: "fork", Keys.BOX_REPLAY: "replay"}
        if isinstance(entry, Denial) and entry.fix and entry.host:
            acts[Keys.BOX_ALLOW] = "allow"
        return acts

    # Drawing.

    @property
    def _is_beside(self) -> bool:
        return self.size.width >= ROOMY

    def _show_details(self, *, is_same: bool = False) -> None:
        entry, past = self.chosen, self.past
        if is_same:
            return
        if entry is None or past is None:
            self.reader.read(lambda width: ())
        else:
            self.reader.read(lambda width: about(entry, past, width))

    def _draw(self) -> None:
        self.head.say(*head(self.session, self.past, self.look, self.clock.now(), max(self.size.width, 1)))
        width = max(self.list.size.width, 1)
        space = max(self.list.size.height, 1)
        first = max(0, min(self.at - space // 2, len(self.entries) - space))
        lines = []
        for number in range(first, min(first + space, len(self.entries))):
            line = row(self.entries[number], self.look, width, self.clock.now(), is_here=number == self.at)
            lines.append(msgspec.structs.replace(line, action=f"{PICKS}{number}"))
        if self.past is not None and not self.entries:
            nothing = NOTHING if self.session.backend == "interpreter" else AGENTS
            lines = [DrawnLine(), *(DrawnLine(((f"  {text}", TOKENS[token]),)) for text, token in nothing)]
        self.list.say(*lines)
        self.foot.say(self._keys())

    def _keys(self) -> DrawnLine:
        sandbox_state, is_interpreter = self.session.sandbox_state, self.session.backend == "interpreter"
        labels = dict(self._list_offers())
        if sandbox_state is not None and self.session.exists:
            labels |= {Keys.BOX_WAKE: "resume"} if sandbox_state.is_asleep else {}
            labels |= {Keys.BOX_FREEZE: "pause"} if can_sleep(self.session) else {}
            labels |= {Keys.BOX_PAUSE: "pause to disk"} if can_pause(self.session) else {}
            labels |= {Keys.BOX_KEEP: "checkpoint", Keys.BOX_FORK_NOW: "fork now"} if is_interpreter else {}
        labels[Keys.LEAVE_BOX] = "back"
        place = f"{self.at + 1} of {len(self.entries)} " if self.entries else ""
        space = max(self.size.width, 1) - len(place) - 2
        for seldom in SELDOM:
            if width_of(self._shown(labels).left) > space:
                labels.pop(seldom, None)
        return msgspec.structs.replace(self._shown(labels), right=((place, "soft"),))

    def _shown(self, labels: Mapping[Action, str]) -> DrawnLine:
        keys = ((self.keys.shown(row.id, self.look.utf8), label, row.id) for row, label in labels.items())
        return key_line(keys, (" ", "text"))


def _refresh_key(session: Session) -> tuple[object, ...]:
    """Return the values whose change requires a refresh of the history."""
    sandbox_state = session.sandbox_state
    return (
        (sandbox_state.checkpoints_counted, sandbox_state.phase, sandbox_state.lost, session.turn_ended)
        if sandbox_state
        else ()
    )
