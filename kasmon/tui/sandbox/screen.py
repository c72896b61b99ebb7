"""The screen of one session's sandbox: its state, its runs, its checkpoints, and blocked hosts."""

from collections.abc import Mapping
from typing import Final

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from kasmon.errors import KasmonError
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.transcript.text import Token
from kasmon.sandbox.network.denials import Denial
from kasmon.supervisor.sandboxes.history import SandboxHistory
from kasmon.tui.action import KeyContext
from kasmon.tui.app_protocols import dashboard_of
from kasmon.tui.clock import Clock
from kasmon.tui.error_text import what_failed
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import SandboxActionRequested
from kasmon.tui.sandbox.entries import Entry, about, entries, head, point_of, row, turn_of
from kasmon.tui.sandbox.status import can_pause, can_sleep
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import TOKENS, ThemeStyles, width_of
from kasmon.tui.widgets.reader import Reader, Sentences
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines, key_line

ROOMY: Final = 140
"""From this width on, an entry's details are beside the list, else below it."""
PICK: Final = "box_pick"
SELDOM: Final = ("box_replay", "box_diff", "box_keep", "box_restore", "box_freeze")
"""Actions that the bottom line leaves out, in this order, if it lacks space; the help lists them."""
NOTHING: Final = (
    ("Nothing ran here yet.", Token.TEXT),
    ("Each turn is listed with its code and exit code, with checkpoints before and after.", Token.NOTICE),
)
AGENTS: Final = (
    ("An agent runs in this sandbox; its history is in its transcript.", Token.TEXT),
    ("Blocked hosts are listed here.", Token.NOTICE),
)


class SandboxScreen(Overlay):
    """The sandbox of *session*. Posts `SandboxActionRequested`."""

    contexts = (KeyContext.SANDBOX,)
    DEFAULT_CSS = """
    SandboxScreen { align: left top; background: $background; }
    SandboxScreen #box-middle { layout: vertical; height: 1fr; width: 1fr; }
    SandboxScreen.-beside #box-middle { layout: horizontal; }
    SandboxScreen #box-list { height: 1fr; width: 1fr; }
    SandboxScreen #box-about { height: 45%; min-height: 9; max-height: 100%; width: 1fr; border-top: solid $k-line; }
    SandboxScreen.-beside #box-about { height: 1fr; width: 44%; border-top: none; border-left: solid $k-line; }
    """

    def __init__(self, look: ThemeStyles, keys: KeyMap, clock: Clock, session: Session) -> None:
        super().__init__()
        self.look, self.keys, self.clock, self.session = look, keys, clock, session
        self.past: SandboxHistory | None = None
        self.entries: tuple[Entry, ...] = ()
        self.at = 0
        self.head = TextLines(look, "surface", id="box-head")
        self.list = TextLines(look, "background", id="box-list")
        self.reader = Reader(look, ground="background", id="box-about")
        self.problem = Sentences(look, id="box-problem")
        self.foot = TextLines(look, "surface", id="box-keys")
        self.handlers = {
            "box_down": lambda: self.pick(self.at + 1),
            "box_up": lambda: self.pick(self.at - 1),
            "box_top": lambda: self.pick(0),
            "box_bottom": lambda: self.pick(len(self.entries) - 1),
            "box_read_on": lambda: self.reader.scroll_pages(1),
            "box_read_back": lambda: self.reader.scroll_pages(-1),
            "leave_box": self.dismiss,
        }
        """Those of the other rows, which act on the sandbox: `SandboxActions.screen_handlers`."""

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
    def chosen(self) -> Entry | None:
        return self.entries[self.at] if self.at < len(self.entries) else None

    def takes(self, key: events.Key) -> bool:
        row = self.keys.action_of(key.aliases, KeyContext.SANDBOX)
        return row is not None and self.do(row.id)

    def do(self, action: str) -> bool:
        if action.startswith(PICK):
            self.pick(int(action.removeprefix(PICK)))
        elif super().do(action):
            return True
        elif (
            action in self._offered()
            or action in ("box_freeze", "box_wake")
            or (action in ("box_keep", "box_pause", "box_fork_now") and self.session.backend == "interpreter")
        ):
            self._post_action(action)
        else:
            return action.startswith("box_")
        return True

    def pick(self, at: int) -> None:
        """Choose the entry with this index, 0 being the newest; does nothing if there is none."""
        if 0 <= at < len(self.entries):
            self.at = at
            self._show_details()
            self._draw()

    def _post_action(self, action: str) -> None:
        entry, past = self.chosen, self.past
        point = point_of(entry, past) if entry is not None and past is not None else ""
        turn = turn_of(entry) if entry is not None else 0
        host = (entry.entry or f"{entry.host}:{entry.port}") if isinstance(entry, Denial) else ""
        self.post_message(SandboxActionRequested(self.session.id, action, checkpoint=point, turn=turn, host=host))

    def _offered(self) -> dict[str, str]:
        """Return the actions for the chosen entry, each with its label."""
        entry, past, acts = self.chosen, self.past, dict[str, str]()
        if entry is None or past is None:
            return acts
        if turn_of(entry):
            acts["box_diff"] = "diff"
        if point_of(entry, past):
            acts |= {"box_restore": "restore", "box_fork": "fork", "box_replay": "replay"}
        if isinstance(entry, Denial) and entry.fix and entry.host:
            acts["box_allow"] = "allow"
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
        room = max(self.list.size.height, 1)
        first = max(0, min(self.at - room // 2, len(self.entries) - room))
        lines = []
        for number in range(first, min(first + room, len(self.entries))):
            line = row(self.entries[number], self.look, width, self.clock.now(), is_here=number == self.at)
            lines.append(msgspec.structs.replace(line, action=f"{PICK}{number}"))
        if self.past is not None and not self.entries:
            nothing = NOTHING if self.session.backend == "interpreter" else AGENTS
            lines = [DrawnLine(), *(DrawnLine(((f"  {text}", TOKENS[token]),)) for text, token in nothing)]
        self.list.say(*lines)
        self.foot.say(self._keys())

    def _keys(self) -> DrawnLine:
        sandbox_state, is_interpreter = self.session.sandbox_state, self.session.backend == "interpreter"
        words = dict(self._offered())
        if sandbox_state is not None and self.session.exists:
            words |= {"box_wake": "resume"} if sandbox_state.is_asleep else {}
            words |= {"box_freeze": "pause"} if can_sleep(self.session) else {}
            words |= {"box_pause": "pause to disk"} if can_pause(self.session) else {}
            words |= {"box_keep": "checkpoint", "box_fork_now": "fork now"} if is_interpreter else {}
        words["leave_box"] = "back"
        place = f"{self.at + 1} of {len(self.entries)} " if self.entries else ""
        room = max(self.size.width, 1) - len(place) - 2
        for seldom in SELDOM:
            if width_of(self._shown(words).left) > room:
                words.pop(seldom, None)
        return msgspec.structs.replace(self._shown(words), right=((place, "soft"),))

    def _shown(self, words: Mapping[str, str]) -> DrawnLine:
        keys = ((self.keys.shown(action, self.look.utf8), word, action) for action, word in words.items())
        return key_line(keys, (" ", "text"))


def _refresh_key(session: Session) -> tuple[object, ...]:
    """Return the values whose change requires a refresh of the history."""
    sandbox_state = session.sandbox_state
    return (
        (sandbox_state.checkpoints_counted, sandbox_state.phase, sandbox_state.lost, session.turn_ended)
        if sandbox_state
        else ()
    )
