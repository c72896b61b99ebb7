"""The schema of a screen's file: one TOML file says how the screens of one agent, in some versions, are read.

    program = "claude"                      # the agent, by its program's name
    versions = ">=2.1.295"                  # empty: all of them

    [[region]]                              # a part of the screen with a name; `AREAS` have one already
    name = "dialog"
    below = '^─{10}'                        # from under the lowest row in which this is found

    [[rule]]                                # the rule with the highest priority that holds says the state
    name = "permission"
    priority = 50
    state = "asking"                        # `a|b` where the screen cannot tell; `unclear` where it says nothing
    asking = "permission"
    in = "dialog"
    all = ['^ Do you want to ', { in = "title", match = '^✳' }]
    menu = "permission"                     # it holds only where this menu stands, whole

    [[menu]]                                # what can be chosen, and which label means which answer
    [[menu.whole]]                          # the proof that all of the request is shown: without one, no consent
    [composer]                              # where a person types
    [activity]                              # what a message and a tool call look like: the list shows the last one
    [[title]]                               # what the window's title says, a word of its own beside the screen's
    [[permission_mode]]                     # how much the agent asks, as its footer says it

Patterns are those of `pattern`; each is looked for in one row at a time.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from kasmon.model.permission import Decision, RequestKind

WORDS: Final = ("starting", "idle", "working", "asking", "limited", "stopped")
"""What a screen says; several with `|` between where it cannot tell."""
UNCLEAR: Final = "unclear"
"""What a screen says of which nothing is known."""
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
"""The parts of a screen that have a name already. A block is the lowest run of rows without a blank or ruled one; where
N rows are meant, blank ones do not count; `cursor` is the row at whose end the cursor stands, and can be seen."""


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that knows all of its keys."""


class PatternCondition(_Node, frozen=True):
    """A pattern with the part of the screen in which it is looked for."""

    match: str
    area: str = msgspec.field(name="in", default="")
    """One of `AREAS` or the name of a region; empty is that of its rule."""
    look: Literal["", "bold", "faint", "reverse"] = ""
    """What was found counts only where all of it looks like this."""
    joined: bool = False
    """Looked for in the rows joined by blanks, for what may be wrapped."""


Found: TypeAlias = str | PatternCondition


class RegionRule(_Node, frozen=True):
    """A part of the screen: rows between two landmarks. Without a landmark of its own it begins at the top."""

    name: str
    below: str = ""
    """It begins under the lowest row in which this is found; there is no such region where none is."""
    start: str = msgspec.field(name="from", default="")
    """Likewise, and that row belongs to it."""
    above: str = ""
    """It ends above the first row after that in which this is found; else it reaches to the last row."""
    cut: str = ""
    """Where this is found and the landmark is not, the landmark has scrolled away: the region begins at the top row."""


class ScreenRule(_Node, frozen=True):
    """What a screen says where all conditions hold."""

    name: str
    state: str
    priority: int = 0
    asking: RequestKind | None = None
    area: str = msgspec.field(name="in", default="screen")
    all: tuple[Found, ...] = ()
    """Each of these is found."""
    any: tuple[Found, ...] = ()
    """At least one of these is found."""
    none: tuple[Found, ...] = ()
    """None of these is found."""
    menu: str = ""
    """The name of a menu that stands there."""
    composer: Literal["", "there", "gone", "empty", "draft"] = ""
    """Whether there is a place to type, and whether something stands in it."""
    failed: bool = False
    """The turn before this ended in an error: `text` says which."""
    text: Found | None = None
    """The group `text` is what is asked, or what went wrong."""
    notice: Found | None = None
    """The group `text` is what to say beside the state."""
    until: Found | None = None
    """The group `until` is when a limit ends, in words (`reset`)."""


class TitleRule(_Node, frozen=True):
    """What a window's title says."""

    state: str
    match: str
    asking: RequestKind | None = None


class PermissionModeRule(_Node, frozen=True):
    """How much the agent asks, where the screen shows it. Of several that are found the first in the file counts."""

    match: str
    mode: str = ""
    """The mode, by the name that the agent's protocol has for it; empty: the group `mode`, in lower case."""
    area: str = msgspec.field(name="in", default="below composer")


class ComposerRule(_Node, frozen=True):
    """Where a person types: a box of rows right above a landmark, or around the cursor."""

    first: str
    """Its first row; the group `draft` is what stands in it."""
    more: str = ""
    """Its other rows, likewise; empty: there are none."""
    bottom: str = ""
    """The row under it, the lowest one of this kind; empty: it lies around the cursor."""
    top: str = ""
    """The row above it; empty: it begins with the nearest row above that is a first row."""
    foot: str = ""
    """Must be found at or under `bottom`; without a `bottom` only where nobody knows the cursor."""
    cursor: Literal["", "inside", "visible"] = ""
    """Where the cursor must be, if that is known: in the box; or there, and visible."""
    skip_last: int = 0
    """So many of its lowest rows hold no text of a person."""
    looks_faint: bool = True
    """Whether text that nobody typed (hints, suggestions) is drawn faint."""
    shows_all: bool = True
    """Whether a prompt is seen to stand in it before Enter is pressed, and to be gone after. Where it is not (a shell:
    another program may run in it) it is typed as into a program that nobody knows."""
    pasted: str = ""
    """What the agent shows in place of a long paste; where it is not found the text itself must stand there."""
    modes: str = ""
    """Characters that become the mark of the box and no part of what stands in it, where a prompt begins with one."""
    brackets: bool = False
    """Whether the agent always takes a paste as one; else kasmon goes by what it was heard to ask for."""
    clear: str = ""
    """The key that takes a line out of it, for a prompt that the agent put back there when its turn was interrupted."""
    newline: str = ""
    """The keys that make a new line and send nothing, for a paste that is not taken as one; empty: such a text is
    refused where it has several lines."""


class WholeRule(_Node, frozen=True):
    """The proof that all of a request is on the screen: every condition holds, and the region has one beginning only.

    An empty table claims that the agent shows all between the region's first row and the choices, or scrolls it away.
    """

    rows: int = 0
    """The region has at most so many rows: the agent cuts only what is taller. 0: any number."""
    all: tuple[str, ...] = ()
    """Each of these is found in a row of the request, above the choices."""
    last: str = ""
    """The row right above the choices, where a request that is cut has another one; empty: any."""


class CallRule(_Node, frozen=True):
    """The rows of a request that show the tool call itself; the agent's own record of the call is found by them."""

    begins: str = ""
    """The first of these rows; the group `text`, where it has one, is the call's own text. Empty: there are none."""
    row: str = ""
    """Each row below it down to the first that is not found by this: the group `text`."""
    named: str = ""
    """Where the call's text is not shown: the row that names what it is about (a file), the group `text`."""


class ViewRule(_Node, frozen=True):
    """The agent's own full view of a request that its menu cuts. kasmon opens it while nobody is focused there."""

    key: str
    """What opens it, typed while the menu stands there."""
    back: str
    """What leads back to the menu, typed while the view stands there."""
    shows: str
    """A row that stands there only while the view is open."""
    start: str = msgspec.field(name="from")
    """The row above the text."""
    end: str = msgspec.field(name="to")
    """The row under the text: the first of this kind below `from`."""
    row: str = "^(?P<text>.*)$"
    """A row of the text: the group `text`. A row that is not found by this ends the text."""
    on: str = ""
    """What scrolls the view on. The text is whole only if that changes nothing. Empty: the frame shows its end."""
    undo: str = ""
    """What scrolls it back where `on` changed something; empty: `back` does."""


class MenuRule(_Node, frozen=True):
    """A list of choices, and what they mean."""

    name: str
    kind: RequestKind
    area: str = msgspec.field(name="in")
    """The request: it is shown from the first row of this region to the last choice."""
    question: str
    """A row of the request, above the choices."""
    choice: str
    """A choice's first row: the groups `label`, where it has one `number`, and `mark` on the one that Enter would
    take. Without numbers every choice stands in a row of its own."""
    more: str = ""
    """A row with which a choice goes on: the group `label`, or `note` where it only explains."""
    gap: int | None = None
    """How many rows may lie between the question and the first choice; empty: any."""
    foot: str = ""
    """Must be found under the choices: else the menu is not whole yet."""
    last: str = ""
    """What the label of the last choice looks like: else the menu is not whole yet."""
    row: bool = False
    """The choices stand beside each other in one row."""
    ground: bool = False
    """The choice that Enter would take has no `mark` but a ground of its own. In a row it always has."""
    deaf: str = ""
    """Where this is found under the choices, somebody writes into one of them."""
    cut: str = ""
    """Where this is found in the request or under the choices, a part of it is not shown."""
    timer: str = ""
    """What counts down in the dialog: no part of the request, which is the same one a second later."""
    whole: tuple[WholeRule, ...] = ()
    """Any of these proves that all of the request is shown. Without a proof kasmon carries no consent to it."""
    call: CallRule | None = None
    view: ViewRule | None = None
    key: str = ""
    """Where the key stands in a label: the group `key`; all of this is then no part of the label."""
    answers: dict[Decision, str] = {}
    """What a choice's label looks like that means this; `choose` is for all that mean nothing else."""
    free: str = ""
    """What the label of a choice looks like that takes a person's own words."""
    words: str = ""
    """What the label of the one of them looks like into which the words are typed while the mark stands on it; it then
    shows them in the place of this, and Enter sends them."""
    placeholder: bool = False
    """They are typed only where that label is the hint of an empty field: faint, with the cursor on its first
    character."""
    opens: str = ""
    """The key by which that choice is opened for them, where it is not open as soon as the mark stands on it. They then
    stand where `entry` says; without one, in its note."""
    entry: str = ""
    """The row under the choices in which own words are then written: the group `text`."""
    plain: str = ""
    """What the label of a choice looks like that means none of these, and into which nobody can write."""
    amends: str = ""
    """Where this is found under the choices, words can be added to the one that the mark stands on: the key `opens_it`
    opens it for them, and they then stand in its label behind a comma."""
    opens_it: str = "\t"
    toggle: str = ""
    """The beginning of the label of a choice that can be chosen beside others, which is then no part of it: the group
    `on` is blank where it is not chosen. Its number chooses it, or takes that back."""
    then: str = ""
    """The key that goes on when all that is wanted is chosen; empty: nobody knows, and kasmon chooses nothing."""
    unmarked: bool = False
    """No choice has a mark: each label names its key."""
    covers: str = ""
    """A row of the request that says what `always` allows: the group `text`. Empty: its label says so."""
    escape: Decision | None = None
    """What Escape means."""
    many: bool = False
    """Several may be chosen."""
    by_arrows: bool = False
    """The number in front of a label is no key: the choice is moved to, and Enter takes it."""


class ActivityRule(_Node, frozen=True):
    """How an agent's messages and tool calls look above its composer: each pattern but `none` has the group `text`."""

    first: tuple[str, ...] = ()
    """The first row of a message or of a tool call."""
    alone: tuple[str, ...] = ()
    """Likewise, only in a row under a blank one."""
    more: tuple[str, ...] = ()
    """A further row of it; under a blank one it begins the next paragraph."""
    none: tuple[str, ...] = ()
    """A row in which this is found is chrome, whatever else it looks like."""


class ScreenFile(_Node, frozen=True):
    """One agent's file."""

    program: str
    also: tuple[str, ...] = ()
    """Other programs with the same screens."""
    versions: str = ""
    """The versions that it is for, such as `>=2.1.295, <3`; empty is all."""
    region: tuple[RegionRule, ...] = ()
    rule: tuple[ScreenRule, ...] = ()
    title: tuple[TitleRule, ...] = ()
    menu: tuple[MenuRule, ...] = ()
    permission_mode: tuple[PermissionModeRule, ...] = ()
    composer: ComposerRule | None = None
    activity: ActivityRule = ActivityRule()
