"""What the pictures show: the dashboard over values, on a clock that stands still, after a few keys.

The snapshots of the tests and the README's pictures are taken of these scenes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import msgspec
from rich.console import Console
from textual.pilot import Pilot

from kasmon.config.profile import ProfileOffer
from kasmon.config.schema import TemplateConfig
from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session, Tokens
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.supervisor.sandboxes.history import SandboxHistory
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.new_session import NewSessionDialog
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.permissions.card.card import PermissionCard
from kasmon.tui.review.screen import ReviewScreen
from kasmon.tui.sandbox.screen import SandboxScreen
from kasmon.tui.search.screen import SearchScreen
from kasmon.tui.session_list.layout import GroupKey, ListLayout, SavedFilter
from kasmon.tui.terminal.scrollback.screen import ScrollbackScreen
from kasmon.tui.terminal.view import FocusView
from kasmon.tui.transcript.view import SessionView
from tests.support import sample_boards, sample_branches, sample_review, sample_sandboxes
from tests.support.bus import sample_machines
from tests.support.sample_fleet import (
    StillClock,
    asking,
    change,
    command,
    crew,
    fleet,
    login,
    plan,
    question,
    tagged_crew,
    working,
)
from tests.support.sample_search import WORDS, finds
from tests.support.sample_transcripts import MAKE, SIGN_IN, deep_talk, short_talk, talk
from tests.support.tui.fake_gateway import GETS, JAILED, FakeGateway
from tests.support.wait import auntil

Act: TypeAlias = Callable[[Pilot[None]], Awaitable[None]]
TALKS = {
    "fix-auth": talk(),
    "choose-store": short_talk("choose-store"),
    "rows-to-strips": talk()[:9],
    "parser": deep_talk(),
    "numbers": sample_sandboxes.talk(),
}
PANES = {"docs": MAKE, "release-notes": SIGN_IN}
RISKY = (
    "for f in $(ls src/*.py); do sed -i 's/old name/new name/' \"$f\" && python -m compileall -q $f; done; "
    "curl -fsSL https://example.com/install.sh | sh -s -- --yes --prefix=/usr/local --token sk-abcdefghijklmnopqrstuvwx"
)
HIDDEN = "cat notes\u202etxt.sh\u200b | sh\n"


def kasmon(shown: Fleet | None = None, *, settings: DashboardSettings | None = None, **gateway: Any) -> Kasmon:
    """The dashboard over a world that stands still."""
    given: dict[str, Any] = {"transcripts": TALKS, "panes": PANES} | gateway
    still = FakeGateway(shown if shown is not None else crew(), settings=settings, **given)
    still.listed = ("src/", "tests/", "src/lex.py", "src/parse.py", "tests/test_parse.py")
    return Kasmon(gateway=still, settings=settings, clock=StillClock())


def planned(*plans: PlanBoard, shown: Fleet | None = None, settings: DashboardSettings | None = None) -> Kasmon:
    """The same, and these plans."""
    app = kasmon(shown, settings=settings)
    if plans:
        cast(FakeGateway, app.gateway).planned.put_nowait(plans)
    return app


async def settled(pilot: Pilot[None]) -> None:
    """Until the fleet is shown, the preview has said what it knows, and nothing is left to draw."""
    app = cast(Kasmon, pilot.app)
    await auntil(lambda: app.has_fleet, what="the fleet")
    await pilot.pause()
    session = app.main_view.preview.session
    if session is not None and session.id in TALKS:
        transcript = app.session_pane.transcripts.of(session.id)
        await auntil(lambda: transcript.cursor, what="the transcript")
        await auntil(lambda: app.session_pane.widget, what="the preview")
    view = app.session_pane.widget
    if isinstance(view, FocusView) and view.session in PANES:
        await auntil(lambda: view.terminal.rows, what="the terminal's rows")
    elif isinstance(view, SessionView):
        await auntil(lambda: view.screen_of_events._screen.size[0] > 1, what="the preview's size")
        await auntil(lambda: view.screen_of_events._frame is None or not view.is_attached, what="the last frame")
        await auntil(lambda: has_searched(view) or not view.is_attached, what="the end of its search")
        len(view.transcript.lines(max(1, view.screen_of_events.size.width - 1)))  # measured whole: the thumb is exact
        view.screen_of_events.show_end()
    await pilot.pause()


@asynccontextmanager
async def run_app(
    app: Kasmon,
    size: tuple[int, int] = (120, 40),
    *,
    act: Callable[[Pilot[None]], Awaitable[object]] = settled,
    notifications: bool = False,
) -> AsyncIterator[Pilot[None]]:
    """Run *app* on a terminal of this *size*, once *act* has brought it where the test begins."""
    async with app.run_test(size=size, notifications=notifications) as pilot:
        await act(pilot)
        yield pilot


def has_searched(view: SessionView) -> bool:
    """Whether nothing is searched for in its transcript, or all of that was looked through and the bar says so.

    A search that gets no time within its first portion, on a busy machine, goes on by a timer.
    """
    search, result = view.screen_of_events.finder.search, view.find_bar.words.result[0]
    return search is None or (search.is_done and bool(result) and not result.endswith("so far"))


def keys(*pressed: str) -> Act:
    """Press these keys."""

    async def act(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press(*pressed)
        before = ""
        while before != (now := pilot.app.export_screenshot()):  # a size may arrive late on a busy machine
            before = now
            await settled(pilot)

    return act


def in_few_colours(system: Literal["256", "standard"], then: Act) -> Act:
    """As on a terminal that has 256 colours, or 16 (`standard`)."""

    async def act(pilot: Pilot[None]) -> None:
        app = cast(Kasmon, pilot.app)
        app.console = Console(color_system=system, force_terminal=True)
        app.user_settings.adopt(app.settings)
        await then(pilot)

    return act


def printed(*pressed: str) -> Act:
    """Read what the terminal under the cursor has printed, and press these keys there."""

    async def act(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("v")
        await auntil(lambda: isinstance(pilot.app.screen, ScrollbackScreen), what="its text")
        await pilot.pause()
        await pilot.press(*pressed)
        await pilot.pause()

    return act


def searching(query: str, *pressed: str) -> Act:
    """Search all sessions for *query*, and press these keys there."""

    async def act(pilot: Pilot[None]) -> None:
        gateway = cast(FakeGateway, cast(Kasmon, pilot.app).gateway)
        gateway.finds = {WORDS: finds()}
        await settled(pilot)
        await pilot.press("ctrl+f")
        await auntil(lambda: isinstance(pilot.app.screen, SearchScreen), what="the search")
        screen = cast(SearchScreen, pilot.app.screen)
        await pilot.press(*query)
        await auntil(lambda: screen.words == query and screen.is_done, what="what it found")
        await pilot.press(*pressed)
        await pilot.pause()

    return act


def card(*pressed: str, of: str = "") -> Act:
    """Open the card, move to the request *of* a session, wait until the card takes keys, and press these."""

    async def act(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("i")
        shown = await armed(pilot)
        for _ in range(shown.view.state.waiting):
            if not of or shown.view.request.session == of:
                break
            await pilot.press("right")
            shown = await armed(pilot)
        assert of in {"", shown.view.request.session}, f"no request of {of}"
        await pilot.press(*pressed)
        if "escape" in pressed:
            await auntil(lambda: shown.editor.box is None, what="the end of the editor")
            await armed(pilot)
        await pilot.pause()

    return act


async def armed(pilot: Pilot[None]) -> PermissionCard:
    """The card, once it takes keys."""
    app = cast(Kasmon, pilot.app)
    clock = cast(StillClock, app.clock)
    found = await auntil(lambda: app.permissions.card, what="a card")
    await pilot.pause()
    for _ in range(50):
        clock.ticked += 1.0
        with suppress(TimeoutError):  # where it is laid out only now, its time begins anew
            await auntil(lambda: found.view.state.armed, 2.0)
            break
    assert found.view.state.armed
    await pilot.pause()
    return found


@dataclass(frozen=True)
class Scene:
    """One picture: what is shown, how large, and what is done before."""

    size: tuple[int, int] = (120, 40)
    act: Act = field(default_factory=keys)
    fleet: Fleet | None = None
    settings: DashboardSettings = field(default_factory=DashboardSettings)
    boards: tuple[PlanBoard, ...] = ()
    offered: tuple[ProfileOffer, ...] | None = None
    """The agents that can be started here; None is what is so in every other picture."""

    def app(self) -> Kasmon:
        app = planned(*self.boards, shown=self.fleet, settings=self.settings)
        if self.offered is not None:
            cast(FakeGateway, app.gateway).offered = self.offered
        return app


def alone(*requests: Any) -> Fleet:
    return fleet(asking("fix-auth", *requests), working("docs"))


def parser() -> Session:
    """A session with a queue, whose model and mode can be changed."""
    waiting = [
        Receipt(id=ReceiptId(f"parser-r{n}"), session=SessionId("parser"), state=ReceiptState.QUEUED, text=text)
        for n, text in enumerate(("Then look at the lexer", "And write an entry for the changelog"), 1)
    ]
    return working(
        "parser",
        receipts=tuple(waiting),
        tokens=Tokens(input=812_000, output=38_000, context=156_000, limit=200_000),
        cost_usd=1.52,
        abilities=("interrupts", "sets_model", "sets_permission_mode", "streams"),
        model="small",
        models=("small", "large"),
        permission_mode="default",
        permission_modes=("default", "plan", "acceptEdits"),
    )


def pushers() -> Fleet:
    """Three sessions that ask for the same thing but for a word."""
    rule = "Bash(git push:*)"
    asks = ((name, f"git push origin {name}") for name in ("fix-auth", "docs", "parser"))
    why = "The branch is ready for review."
    return fleet(*(asking(name, command(name, line, rule=rule, why=why)) for name, line in asks), working("index"))


async def together(pilot: Pilot[None]) -> None:
    """Open the card, and the list of all requests that are like the first."""
    await card("T")(pilot)
    await armed(pilot)


def inbox(*pressed: str) -> Act:
    """Open the list of all requests, and press these once its card takes keys."""

    async def act(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("I")
        await armed(pilot)
        for key in pressed:
            await pilot.press(key)
            await pilot.pause()
        await armed(pilot)

    return act


def reviewing(*pressed: str) -> Act:
    """Open the review of the first session, and press these keys there."""

    async def act(pilot: Pilot[None]) -> None:
        await settled(pilot)
        app = cast(Kasmon, pilot.app)
        gateway = cast(FakeGateway, app.gateway)
        gateway.diffs, gateway.commented = {"api": sample_review.DIFF}, {"api": sample_review.COMMENTS}
        await pilot.press("D")
        await auntil(lambda: isinstance(app.screen, ReviewScreen), what="the review")
        for key in pressed:
            await pilot.press(key)
            await pilot.pause()
        screen = cast(ReviewScreen, app.screen)
        await auntil(lambda: screen.view.has_colours, what="the colours")
        await pilot.pause()

    return act


def waves(*pressed: str, plans: int = 1) -> Act:
    """Open the wave board once so many plans are known, and press these keys there."""

    async def act(pilot: Pilot[None]) -> None:
        await settled(pilot)
        app = cast(Kasmon, pilot.app)
        await auntil(lambda: len(app.plan_board.boards) == plans, what="the plans")
        for key in ("B", *pressed):
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause()

    return act


def desk_of_asks() -> Fleet:
    """Requests of every kind, three of them alike, one set aside."""
    aside = msgspec.structs.replace(command("perf", "make bench", ago=900), later=True)
    return fleet(
        *pushers().sessions,
        asking("choose-store", question("choose-store"), plan("choose-store", 2), agent="codex", ago=95),
        asking("release-notes", login("release-notes"), ago=230, agent="gemini", mode=Mode.TMUX),
        asking("rows-to-strips", change("rows-to-strips"), agent="codex"),
        asking("perf", aside, agent="opencode"),
    )


async def nothing_asked(pilot: Pilot[None]) -> None:
    """Open the list of all requests where none waits."""
    await keys("I")(pilot)


NOTED = question(
    "fix-auth", free_text=True, many=True, option_notes=("No server, one file.", "", "Slow from 10,000 sessions on.")
)
TO_FIX_AUTH = ("j", "j", "j")


async def history(pilot: Pilot[None], past: SandboxHistory | None = None) -> None:
    """Open what is known of the selected session's sandbox."""
    app = cast(Kasmon, pilot.app)
    cast(FakeGateway, app.gateway).pasts = {"numbers": past or sample_sandboxes.past()}
    await settled(pilot)
    await pilot.press("H")
    await auntil(lambda: isinstance(app.screen, SandboxScreen), what="the sandbox")
    screen = cast(SandboxScreen, app.screen)
    await auntil(lambda: screen.past, what="its past")
    await pilot.pause()


def chosen(*pressed: str, past: SandboxHistory | None = None) -> Act:
    """The same, with these keys pressed there."""

    async def act(pilot: Pilot[None]) -> None:
        await history(pilot, past)
        await pilot.press(*pressed)
        await pilot.pause()

    return act


def jailed(*pressed: str) -> Act:
    """Open the dialog of a new session where sandboxes can be made, and press these keys."""

    async def act(pilot: Pilot[None]) -> None:
        gateway = cast(FakeGateway, cast(Kasmon, pilot.app).gateway)
        gateway.offered, gateway.confinement = JAILED, GETS
        await keys("n", *pressed)(pilot)

    return act


def on_machines(then: Act) -> Act:
    """With three registered machines."""

    async def act(pilot: Pilot[None]) -> None:
        app = cast(Kasmon, pilot.app)
        cast(FakeGateway, app.gateway).registered.put_nowait(sample_machines.MACHINES)
        await settled(pilot)
        await auntil(lambda: app.machines, what="the machines")
        await then(pilot)

    return act


SLEEPS = fleet(next(each for each in sample_sandboxes.machines().sessions if each.name == "numbers"))


async def branched(pilot: Pilot[None]) -> None:
    """Show the states of branches in the list."""
    app = cast(Kasmon, pilot.app)
    cast(FakeGateway, app.gateway).branched.put_nowait(sample_branches.BRANCHES)
    await settled(pilot)
    await auntil(lambda: app.main_view.table.branches, what="the branches")
    await pilot.pause()


def finishing(*pressed: str) -> Act:
    """Open the finish screen of the selected session, and press these keys there."""

    async def act(pilot: Pilot[None]) -> None:
        app = cast(Kasmon, pilot.app)
        cast(FakeGateway, app.gateway).finishes = sample_branches.planned
        await branched(pilot)
        await pilot.press("F")
        await auntil(lambda: app.finish.screen is not None and app.finish.screen.plan, what="what is left")
        for key in pressed:
            await pilot.press(key)
            await settled(pilot)

    return act


async def templated(pilot: Pilot[None]) -> None:
    """Choose a template in the dialog for a new session."""
    fix = TemplateConfig(agent="claude", tags=("bug", "api"), account="work", prompt="Fix issue {issue} for {who}.")
    app = cast(Kasmon, pilot.app)
    cast(FakeGateway, app.gateway).templates_in = {"": {"fix": fix, "review": TemplateConfig()}}
    await keys("n")(pilot)
    dialog = cast(NewSessionDialog, app.screen)
    await auntil(lambda: dialog.template.display and dialog.agent.can_start, what="templates and agents")
    for key in ("tab", "right", "enter", *"12"):
        await pilot.press(key)
        await settled(pilot)


NO_AGENT = (
    *(ProfileOffer(name=name, modes=(), problem="not on PATH") for name in ("claude", "codex", "gemini", "opencode")),
    ProfileOffer(name="shell", modes=(Mode.TMUX,)),
    ProfileOffer(name="scripted", modes=(Mode.SDK, Mode.TMUX)),
)
NUMBERS = fleet(sample_sandboxes.interpreters("numbers"), working("docs"))
SCENES: dict[str, Scene] = {
    "list-80x24": Scene((80, 24), keys("j")),
    "list-120x40": Scene((120, 40), keys(*TO_FIX_AUTH)),
    "list-160x50": Scene((160, 50), keys(*TO_FIX_AUTH)),
    "waves-120x40": Scene(act=keys("W", "home", "j", "j")),
    "waves-80x24": Scene((80, 24), keys("W")),
    "filter": Scene(act=keys("slash", *"wave:1", "enter")),
    "filter-written-80x24": Scene((80, 24), keys("slash", *"asking")),
    "list-60x20": Scene((60, 20), keys("j")),
    "ended": Scene(act=keys("slash", *"flaky", "enter")),
    "no-preview": Scene((80, 24), keys("space")),
    "terminal-preview": Scene(act=keys("G", *"kkkk")),
    "card-command": Scene(act=card(of="fix-auth")),
    "card-login": Scene(act=card(of="release-notes")),
    "card-command-80x24": Scene((80, 24), card(), alone(command("fix-auth", RISKY))),
    "card-diff": Scene(act=card(), fleet=alone(change("fix-auth"))),
    "card-diff-160x50": Scene((160, 50), card(of="rows-to-strips")),
    "card-hidden": Scene(act=card("a", "b"), fleet=alone(command("fix-auth", HIDDEN))),
    "card-question": Scene(act=card("2", of="choose-store")),
    "card-question-many": Scene(act=card("1", "3"), fleet=alone(question("fix-auth", many=True))),
    "card-plan": Scene(act=card(), fleet=alone(plan("fix-auth"))),
    "card-reach-80x24": Scene((80, 24), card("s"), fleet(asking("fix-auth", command("fix-auth", "make"), plan="p1"))),
    "card-never": Scene(act=card("D", *"not on a Friday"), fleet=alone()),
    "card-together": Scene(act=together, fleet=pushers()),
    "card-own-words": Scene(act=card("1", "4", *"and a backup"), fleet=alone(NOTED)),
    "card-deny": Scene(act=card("d", *"not on a Friday"), fleet=alone()),
    "card-edited": Scene(act=card("e", "end", *" -n", "escape"), fleet=alone()),
    "inbox-80x24": Scene((80, 24), inbox("j", "j", "j"), desk_of_asks()),
    "inbox-120x40": Scene(act=inbox(), fleet=desk_of_asks()),
    "inbox-160x50": Scene((160, 50), inbox("j", "j", "j", "j"), desk_of_asks()),
    "inbox-marked-120x40": Scene(act=inbox("G", "k", "space", "k", "space"), fleet=desk_of_asks()),
    "inbox-request-80x24": Scene(
        (80, 24),
        inbox("tab"),
        fleet(asking("fix-auth", command("fix-auth", RISKY)), asking("docs", change("docs", ago=5)), working("index")),
    ),
    "inbox-empty": Scene((80, 24), nothing_asked, fleet(working("docs"))),
    "review-160x50": Scene((160, 50), reviewing("tab"), fleet(working("api"))),
    "review-100x30": Scene((100, 30), reviewing("tab", "J", "v", "j"), fleet(working("api"))),
    "review-60x20": Scene((60, 20), reviewing("tab", "slash", *"token", "enter"), fleet(working("api"))),
    "review-two-columns-160x50": Scene((160, 50), reviewing("tab", "s"), fleet(working("api"))),
    "board-120x40": Scene(
        act=waves("down", plans=2), fleet=sample_boards.crew(), boards=(sample_boards.board(), sample_boards.other())
    ),
    "board-asking-120x40": Scene(
        act=waves("]", "[", plans=2),
        fleet=fleet(*sample_boards.SESSIONS[:2]),
        boards=(sample_boards.asked(), sample_boards.over()),
    ),
    "board-80x24": Scene((80, 24), waves("down"), sample_boards.crew(), boards=(sample_boards.board(),)),
    "board-empty": Scene((80, 24), waves(plans=0), fleet(working("docs"))),
    "branches-120x40": Scene(act=branched, fleet=sample_branches.finisher()),
    "finish-160x50": Scene((160, 50), finishing(), sample_branches.finisher()),
    "finish-100x30": Scene((100, 30), finishing(), sample_branches.finisher()),
    "finish-60x20": Scene((60, 20), finishing(), sample_branches.finisher()),
    "finish-merge-100x30": Scene((100, 30), finishing("m"), sample_branches.finisher()),
    "finish-discard-60x20": Scene((60, 20), finishing("X"), sample_branches.finisher()),
    "machines-160x50": Scene((160, 50), on_machines(keys("j")), sample_machines.three_machines()),
    "machines-80x24": Scene((80, 24), on_machines(keys("G", "k")), sample_machines.three_machines()),
    "machines-card-80x24": Scene((80, 24), on_machines(card(of="release")), sample_machines.three_machines()),
    "new-120x40": Scene(act=keys("n")),
    "new-80x24": Scene((80, 24), keys("n")),
    "new-wrong-80x24": Scene((80, 24), keys("n", *"fix-auth", "enter")),
    "new-template-120x50": Scene((120, 50), templated),
    "palette": Scene(act=keys("ctrl+p")),
    "message": Scene(act=keys(*TO_FIX_AUTH, "m", *"Go on")),
    "broadcast": Scene(act=keys("slash", *"agent:codex", "enter", "M", *"Go on")),
    "stop": Scene(act=keys(*TO_FIX_AUTH, "x")),
    "groups-120x40": Scene(
        act=keys("j", "j", "j"), fleet=tagged_crew(), settings=DashboardSettings(layout=ListLayout(group=GroupKey.TAG))
    ),
    "groups-80x24": Scene((80, 24), keys("g", "g", "home", "h"), tagged_crew()),
    "columns-120x40": Scene(act=keys("|", "down", "down", "space", "down", "J"), fleet=tagged_crew()),
    "tabs-120x40": Scene(
        act=keys("]", "]"),
        fleet=tagged_crew(),
        settings=DashboardSettings(
            layout=ListLayout(filters=(SavedFilter("mine", "state:asking,lost"), SavedFilter("api", "tag:api")))
        ),
    ),
    "tags-120x40": Scene(act=keys(*TO_FIX_AUTH, "T"), fleet=tagged_crew()),
    "help-120x40": Scene(act=keys("question_mark")),
    "help-80x24": Scene((80, 24), keys("question_mark")),
    "settings": Scene(act=keys("comma")),
    "inside-structured-120x40": Scene(act=keys(*TO_FIX_AUTH, "enter", *"Use the")),
    "inside-structured-80x24": Scene((80, 24), keys(*TO_FIX_AUTH, "enter")),
    "reading": Scene(act=keys("v", "slash", *"compil", "enter"), fleet=fleet(parser())),
    "queue": Scene(act=keys("enter", "shift+tab", "j"), fleet=fleet(parser())),
    "completing-80x24": Scene((80, 24), keys("enter", *"see @pa"), fleet=fleet(parser())),
    "configuring": Scene(act=keys("enter", "f3"), fleet=fleet(parser())),
    "printed-80x24": Scene(
        (80, 24), printed("slash", *"read", "enter", "v", "k", "l"), fleet(working("docs", mode=Mode.TMUX))
    ),
    "inside-terminal": Scene(act=keys("G", *"kkkk", "enter")),
    "search-80x24": Scene((80, 24), searching(WORDS)),
    "search-160x50": Scene((160, 50), searching(WORDS, "down")),
    "search-empty": Scene((80, 24), searching("")),
    "sandboxes-80x24": Scene((80, 24), keys("j"), sample_sandboxes.sandboxes()),
    "sandboxes-120x40": Scene(act=keys("j", "j"), fleet=sample_sandboxes.sandboxes()),
    "sandboxes-160x50": Scene((160, 50), keys("G", "k", "k"), sample_sandboxes.sandboxes()),
    "sandbox-code-120x40": Scene(act=keys("enter", "tab", *"ls -l"), fleet=NUMBERS),
    "sandbox-history-80x24": Scene((80, 24), chosen("j"), NUMBERS),
    "sandbox-history-160x50": Scene((160, 50), chosen("j", "j", "j"), NUMBERS),
    "sandbox-refused-120x40": Scene(act=chosen("G", "k", "k"), fleet=NUMBERS),
    "memory-120x40": Scene(act=keys("G", "k"), fleet=sample_sandboxes.machines()),
    "memory-80x24": Scene((80, 24), keys("j", "j"), sample_sandboxes.machines()),
    "memory-history-120x40": Scene(act=chosen("j", past=sample_sandboxes.remembered()), fleet=SLEEPS),
    "memory-refused-80x24": Scene(
        (80, 24),
        chosen("j", past=sample_sandboxes.remembered("it is truncated: memory has 4096 bytes of 91226112")),
        SLEEPS,
    ),
    "memory-fork-80x24": Scene((80, 24), keys("f"), fleet(sample_sandboxes.machine("numbers"), working("docs"))),
    "new-jail-80x24": Scene((80, 24), jailed(), fleet(working("docs"))),
    "colours-256": Scene(act=in_few_colours("256", settled)),
    "card-colours-256": Scene(act=in_few_colours("256", card(of="fix-auth"))),
    "card-colours-16": Scene(act=in_few_colours("standard", card(of="fix-auth"))),
    "too-small": Scene((39, 9)),
    "narrow-40x10": Scene((40, 10)),
    "empty": Scene(fleet=fleet()),
    "empty-no-agent-80x24": Scene((80, 24), fleet=fleet(), offered=NO_AGENT),
    "ascii": Scene(act=keys(*TO_FIX_AUTH), settings=DashboardSettings(ascii="yes")),
    **{
        f"theme-{name}": Scene(act=keys(*TO_FIX_AUTH), settings=DashboardSettings(theme=name))
        for name in (
            "catppuccin-mocha",
            "catppuccin-latte",
            "github-light",
            "nord",
            "rose-pine-dawn",
            "high-contrast",
            "monochrome",
            "sixteen",
        )
    },
}
