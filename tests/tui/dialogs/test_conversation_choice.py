"""A new session begins with an earlier conversation of its agent, chosen from a list."""

from kasmon.config.profile import ProfileOffer
from kasmon.errors import UnableError
from kasmon.model.commands import ConversationOffer, ConversationOffers, Mode
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.protocol import DashboardSettings
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import fleet, idle
from tests.support.tui.fake_gateway import created, gateway_of, text_of
from tests.support.wait import auntil

STORED = ConversationOffers(
    conversations=(
        ConversationOffer(id="talk-1", folder="/home/you", title="[b]tidy up", used_at=1_796_032_800.0),
        ConversationOffer(id="talk-2", folder="/home/you", session="readme"),
    ),
    is_whole=False,
)
TO_MORE = ["tab"] * 5
"""From the name to the fold."""


def dashboard() -> Kasmon:
    app = kasmon(fleet(idle("readme")), settings=DashboardSettings(workdir="/home/you"))
    gateway_of(app).offered = tuple(
        ProfileOffer(name=name, modes=(Mode.SDK, Mode.TMUX)) for name in ("opencode", "gemini")
    )
    gateway_of(app).stored = STORED
    return app


async def test_the_agents_conversations_are_listed_and_the_chosen_one_is_resumed() -> None:
    async with run_app(app := dashboard(), size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "opencode" in text_of(app), what="the agents")
        assert () == gateway_of(app).listing
        await pilot.press(*"fix", *TO_MORE, "enter", "tab", "right")
        await auntil(lambda: "[b]tidy up" in text_of(app), what="the conversations")
        assert (("opencode", Mode.SDK, "/home/you", ""),) == gateway_of(app).listing
        assert "talk-2" in text_of(app)
        assert "The agent stores more" in text_of(app)
        await pilot.press("tab", "down", "enter")
        await auntil(lambda: gateway_of(app).calls != [], what="the session")

        expected = created("fix", "opencode", mode=Mode.SDK, workdir="/home/you", resume="talk-2")
        assert [expected] == gateway_of(app).calls


async def test_another_agent_has_other_conversations() -> None:
    async with run_app(app := dashboard(), size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "opencode" in text_of(app), what="the agents")
        await pilot.press(*TO_MORE, "enter", "tab", "right")
        await auntil(lambda: len(gateway_of(app).listing) == 1, what="the first list")
        await pilot.press(*["shift+tab"] * 6, "right")
        await auntil(lambda: len(gateway_of(app).listing) == 2, what="the second list")

        assert ("gemini", Mode.SDK, "/home/you", "") == gateway_of(app).listing[-1]


async def test_an_agent_without_a_list_reports_that_and_starts_none() -> None:
    app = dashboard()
    gateway_of(app).refusing = UnableError("'opencode' does not list its conversations.")
    async with run_app(app, size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "opencode" in text_of(app), what="the agents")
        await pilot.press(*TO_MORE, "enter", "tab", "right")
        await auntil(lambda: "does not list its conversations" in text_of(app), what="why")
        await pilot.press("enter")
        await auntil(lambda: "There is no earlier conversation to resume." in text_of(app), what="the refusal")

        assert [] == gateway_of(app).calls


async def test_no_conversation_is_resumed_that_was_not_listed_at_the_confirmation() -> None:
    async with run_app(app := dashboard(), size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "opencode" in text_of(app), what="the agents")
        gateway_of(app).knows.clear()
        await pilot.press(*"fix", *TO_MORE, "enter", "tab", "right", "enter")
        await auntil(lambda: "The conversations are not listed yet." in text_of(app), what="the refusal")
        gateway_of(app).knows.set()
        await auntil(lambda: "[b]tidy up" in text_of(app), what="the conversations")

        assert [] == gateway_of(app).calls
