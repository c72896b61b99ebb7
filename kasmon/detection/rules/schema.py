"""The schema of a screen rule file: a TOML file that defines how the screens of one agent, in some versions, are read.

    program = "claude"                      # the agent's program name
    versions = ">=2.1.295"                  # empty: all versions

    [[region]]                              # a named part of the screen; `AREAS` are predefined
    name = "dialog"
    below = '^─{10}'                        # begins below the lowest row that matches

    [[rule]]                                # the matching rule with the highest priority decides the state
    name = "permission"
    priority = 50
    state = "asking"                        # `a|b` if ambiguous; `unclear` if the screen shows nothing
    asking = "permission"
    in = "dialog"
    all = ['^ Do you want to ', { in = "title", match = '^✳' }]
    menu = "permission"                     # the rule matches only if this menu is shown completely

    [[menu]]                                # the choices, and which label means which answer
    [[menu.whole]]                          # the proof that the whole request is shown: without one, no consent
    [composer]                              # where a person types
    [activity]                              # what messages and tool calls look like: the list shows the last one
    [[title]]                               # a state of its own, read from the window title
    [[permission_mode]]                     # the agent's permission mode, as its footer shows it

Patterns are those of `safe_regex`; each is matched against one row at a time.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from kasmon.model.permission import Decision, RequestKind

WORDS: Final = ("starting", "idle", "working", "asking", "limited", "stopped")
"""The states of a screen; several are joined with `|` if ambiguous."""
UNCLEAR: Final = "unclear"
"""The state of a screen that no rule matches."""
AREAS: Final = (
    "screen",
    "top N",
    "bottom N",
    "block",
    "block above composer",
    "above composer",
    "above composer N",
    "composer",
    "below composer",
    "cursor",
    "title",
)
"""The predefined parts of a screen. A block is the lowest run of rows without a blank or ruled one. N counts only
non-blank rows. `cursor` is the row that ends at the cursor, if the cursor is visible."""


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that rejects unknown keys."""


class PatternCondition(_Node, frozen=True):
    """A pattern with the part of the screen that it is matched in."""

    match: str
    area: str = msgspec.field(name="in", default="")
    """One of `AREAS` or the name of a region; empty: the area of its rule."""
    look: Literal["", "bold", "faint", "reverse"] = ""
    """The match counts only if all of it looks like this."""
    joined: bool = False
    """Match against the rows joined by blanks, for text that may be wrapped."""


TextPattern: TypeAlias = str | PatternCondition


class RegionRule(_Node, frozen=True):
    """A named part of the screen: rows between two landmarks. Without an upper landmark it begins at the top."""

    name: str
    below: str = ""
    """It begins below the lowest row that matches this; without a match the region does not exist."""
    start: str = msgspec.field(name="from", default="")
    """Like `below`, but the matching row belongs to the region."""
    above: str = ""
    """It ends above the first later row that matches this; without a match it extends to the last row."""
    cut: str = ""
    """If this matches and the landmark does not, the landmark has scrolled away: the region begins at the top row."""


class ScreenRule(_Node, frozen=True):
    """The state of a screen on which all conditions match."""

    name: str
    state: str
    priority: int = 0
    asking: RequestKind | None = None
    area: str = msgspec.field(name="in", default="screen")
    all: tuple[TextPattern, ...] = ()
    """All of these must match."""
    any: tuple[TextPattern, ...] = ()
    """At least one of these must match."""
    none: tuple[TextPattern, ...] = ()
    """None of these may match."""
    menu: str = ""
    """The name of a menu that must be shown."""
    composer: Literal["", "there", "gone", "empty", "draft"] = ""
    """Whether there must be a composer, and whether it must hold a draft."""
    failed: bool = False
    """Whether the previous turn ended in an error, which `text` extracts."""
    text: TextPattern | None = None
    """The group `text` is the question, or the error message."""
    notice: TextPattern | None = None
    """The group `text` is a remark on the state."""
    until: TextPattern | None = None
    """The group `until` is when a limit ends, as text (`limit_reset`)."""


class TitleRule(_Node, frozen=True):
    """A state read from the window title."""

    state: str
    match: str
    asking: RequestKind | None = None


class PermissionModeRule(_Node, frozen=True):
    """The agent's permission mode, where the screen shows it. The first match in file order counts."""

    match: str
    mode: str = ""
    """The mode's name in the agent's protocol; empty: the group `mode`, in lower case."""
    area: str = msgspec.field(name="in", default="below composer")


class ComposerRule(_Node, frozen=True):
    """The composer, where a person types: rows right above a landmark, or around the cursor."""

    first: str
    """Its first row; the group `draft` is its text."""
    more: str = ""
    """Its other rows, likewise; empty: there are none."""
    bottom: str = ""
    """The lowest row that matches is the one below it; empty: it is located around the cursor."""
    top: str = ""
    """The row above it; empty: it begins at the nearest row above that matches `first`."""
    foot: str = ""
    """Must match at or below `bottom`; without a `bottom`, checked only if the cursor is unknown."""
    cursor: Literal["", "inside", "visible"] = ""
    """Where the cursor must be, if it is known: in the box; or there, and visible."""
    skip_last: int = 0
    """How many of its lowest rows hold no text of a person."""
    looks_faint: bool = True
    """Whether the agent's own text (hints, suggestions) is drawn faint."""
    shows_all: bool = True
    """Whether kasmon can verify that a prompt appears in it before Enter and disappears after. If not (a shell: another
    program may run in it), kasmon types as into a program without rules."""
    pasted: str = ""
    """The agent's placeholder for a long paste; if it does not match, the text itself must be shown."""
    modes: str = ""
    """Characters that, at the beginning of a prompt, become the mark of the box instead of text in it."""
    brackets: bool = False
    """Whether the agent always takes a paste as one; else kasmon uses the mode that the agent last set."""
    clear: str = ""
    """The key that deletes a line of it, for a prompt that the agent restored there when its turn was interrupted."""
    newline: str = ""
    """The keys that insert a line break without sending, for a paste that is not taken as one; empty: a text of several
    lines is refused."""


class CompletenessRule(_Node, frozen=True):
    """The proof that the whole request is on the screen: all conditions match, and only one row begins the region.

    An empty table claims that the agent shows all from the region's first row to the choices, or scrolls it away.
    """

    rows: int = 0
    """The region has at most this many rows: the agent cuts only taller requests. 0: any number."""
    all: tuple[str, ...] = ()
    """Each of these matches a row of the request, above the choices."""
    frame: str = ""
    """Two rows of the request match it, the first and the last of a frame: of a cut request one is not shown."""
    last: str = ""
    """The row right above the choices, which is a different one in a cut request; empty: any."""


class CallRule(_Node, frozen=True):
    """The rows of a request that show the tool call itself; used to find the agent's own record of the call."""

    begins: str = ""
    """The first of these rows; its group `text`, if any, is the call's own text. Empty: there are none."""
    row: str = ""
    """The rows below it, down to the first that does not match: the group `text`."""
    named: str = ""
    """If the call's text is not shown: the row that names its subject (a file), the group `text`."""
    lines: str = ""
    """If this matches a row of the request, the text is a command: each end of a line must be told from a wrapped row,
    or the request is not proven whole by its screen."""


class ViewRule(_Node, frozen=True):
    """The agent's full view of a request that its menu cuts. kasmon opens it while the session is not focused."""

    key: str
    """The key that opens it while the menu is shown."""
    back: str
    """The key that returns to the menu while the view is shown."""
    shows: str
    """A row that appears only while the view is open."""
    start: str = msgspec.field(name="from")
    """The row above the text."""
    end: str = msgspec.field(name="to")
    """The row below the text: the only one below `from` that matches. With two of them the text is not complete."""
    row: str = "^(?P<text>.*)$"
    """A row of the text: the group `text`. A row that does not match ends the text."""
    on: str = ""
    """The key that scrolls forward. The text is whole only if that changes nothing. Empty: the frame shows its end."""
    undo: str = ""
    """The key that scrolls back after `on` changed something; empty: `back` does."""


class MenuRule(_Node, frozen=True):
    """A list of choices and their meanings."""

    name: str
    kind: RequestKind
    area: str = msgspec.field(name="in")
    """The region of the request: from its first row to the last choice."""
    question: str
    """A row of the request, above the choices."""
    choice: str
    """A choice's first row: the groups `label`, `number` if it has one, and `mark` on the one that Enter would take.
    Without numbers every choice has one row."""
    more: str = ""
    """A continuation row of a choice: the group `label`, or `note` if it only explains."""
    gap: int | None = None
    """How many rows may be between the question and the first choice; empty: any."""
    foot: str = ""
    """Must match below the choices; otherwise the menu is not complete yet."""
    last: str = ""
    """Must match the label of the last choice; otherwise the menu is not complete yet."""
    row: bool = False
    """Whether the choices are beside each other in one row."""
    ground: bool = False
    """Whether the choice that Enter would take has a background instead of a `mark`. With `row` it always has."""
    deaf: str = ""
    """If this matches below the choices, text is being written into one of them."""
    cut: str = ""
    """If this matches in the request or below the choices, part of the request is not shown."""
    timer: str = ""
    """A countdown in the dialog; it is removed, so that the request stays the same while it changes."""
    whole: tuple[CompletenessRule, ...] = ()
    """Any of these proves that the whole request is shown. Without a proof kasmon sends no consent to it."""
    call: CallRule | None = None
    view: ViewRule | None = None
    key: str = ""
    """The key in a label: the group `key`; the whole match is removed from the label."""
    answers: dict[Decision, str] = {}
    """Patterns of labels by their meaning; `choose` is for labels that match no other."""
    free: str = ""
    """Matches the label of a choice that takes free text."""
    words: str = ""
    """Matches the label of the free-text choice into which text is typed while the mark is on it. The text then
    replaces the label, and Enter sends it."""
    placeholder: bool = False
    """Whether text is typed only if that label is the hint of an empty field: faint, with the cursor on its first
    character."""
    opens: str = ""
    """The key that opens that choice for text, if the mark alone does not. The text then appears where `entry` matches;
    without `entry`, in the choice's note."""
    entry: str = ""
    """The row below the choices that then shows the free text: the group `text`."""
    plain: str = ""
    """Matches the label of a choice that has none of these meanings and takes no text."""
    amends: str = ""
    """If this matches below the choices, a reason can be added to the marked one: the key `opens_it` opens it, and the
    reason then appears in its label behind a comma."""
    opens_it: str = "\t"
    toggle: str = ""
    """The beginning of the label of a choice that can be selected with others; it is removed from the label. Its group
    `on` is blank if the choice is not selected. The choice's number toggles it."""
    then: str = ""
    """The key that continues once all requested choices are selected; empty: unknown, and kasmon selects nothing."""
    unmarked: bool = False
    """Whether no choice has a mark, and each label names its key."""
    covers: str = ""
    """A row of the request that states what `always` allows: the group `text`. Empty: its label does."""
    escape: Decision | None = None
    """What Escape means."""
    no_plan: bool = False
    """Whether it asks for the approval of a plan without a text; the card then says so."""
    many: bool = False
    """Whether several choices may be selected."""
    by_arrows: bool = False
    """Whether a label's number is no key: the arrow keys move to the choice, and Enter takes it."""


class ActivityRule(_Node, frozen=True):
    """The patterns of an agent's messages and tool calls above its composer; each but `none` has the group `text`."""

    first: tuple[str, ...] = ()
    """The first row of a message or of a tool call."""
    alone: tuple[str, ...] = ()
    """Like `first`, but only in a row below a blank one."""
    more: tuple[str, ...] = ()
    """A continuation row; below a blank row it begins the next paragraph."""
    none: tuple[str, ...] = ()
    """A row that matches this is user interface, not content, even if another pattern matches."""


class ScreenFile(_Node, frozen=True):
    program: str
    also: tuple[str, ...] = ()
    """Other programs with the same screens."""
    versions: str = ""
    """The versions that it applies to, such as `>=2.1.295, <3`; empty: all."""
    region: tuple[RegionRule, ...] = ()
    rule: tuple[ScreenRule, ...] = ()
    title: tuple[TitleRule, ...] = ()
    menu: tuple[MenuRule, ...] = ()
    permission_mode: tuple[PermissionModeRule, ...] = ()
    composer: ComposerRule | None = None
    activity: ActivityRule = ActivityRule()
