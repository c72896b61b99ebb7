"""A template in the dialog for a new session: it fills in the fields, asks for its own, and nothing typed is lost."""

from typing import cast

import pytest
from textual.pilot import Pilot

from kasmon.config import ProfileOffer
from kasmon.config.schema import TemplateConfig
from kasmon.model.commands import Mode
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.new_session import NewSessionDialog
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.textual_ext.inputs import LineInput
from tests.support.dashboard_scenes import kasmon, settled
from tests.support.sample_fleet import fleet, idle
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.wait import auntil

FIX = TemplateConfig(
    agent="scripted",
    mode="tmux",
    account="work",
    tags=("bug",),
    prompt="Fix {issue} for {who}, {{soon}}",
)
TEMPLATES = {"fix": FIX, "far": TemplateConfig(agent="gemini", machine="gpu-1", prompt="Look {x}")}


def dialog_of(pilot: Pilot[None]) -> NewSessionDialog:
    return cast(NewSessionDialog, pilot.app.screen)


async def opened(pilot: Pilot[None]) -> NewSessionDialog:
    """Open the dialog where templates apply, and focus their choice."""
    gateway_of(pilot.app).templates_in = {"/home/you": TEMPLATES}
    await settled(pilot)
    await pilot.press("n")
    await auntil(lambda: len(pilot.app.screen_stack) == 2, what="the dialog")
    dialog = dialog_of(pilot)
    await auntil(lambda: dialog.template.display and dialog.agent.can_start, what="templates and agents")
    await pilot.press("tab")
    return dialog


async def chosen(pilot: Pilot[None], *keys: str) -> NewSessionDialog:
    dialog = await opened(pilot)
    await pilot.press(*(keys or ("right",)))
    await settled(pilot)
    return dialog


def app() -> Kasmon:
    return kasmon(fleet(idle("readme")), settings=DashboardSettings(workdir="/home/you"))


async def test_an_unavailable_account_of_a_template_is_not_replaced_by_another_login() -> None:
    """The start is refused with the reason, in place of a session with a log-in that nobody chose."""
    async with app().run_test(size=(120, 50)) as pilot:
        gateway_of(pilot.app).offered = (ProfileOffer(name="scripted", modes=(Mode.TMUX,), accounts=("home",)),)
        dialog = await chosen(pilot)

        assert dialog.account_field.display
        assert "work" == dialog._requested_account()
        await pilot.press("left")
        await settled(pilot)
        assert "" == dialog._requested_account()


async def test_a_template_fills_the_dialog_and_its_fields_are_entered() -> None:
    async with app().run_test(size=(120, 50)) as pilot:
        dialog = await chosen(pilot)

        assert ("scripted", Mode.TMUX) == (dialog.agent.value, dialog._mode)
        assert FIX.prompt == dialog.prompt_box.text
        assert "account: work, tags: bug" in text_of(pilot.app)
        await pilot.press("enter")
        await settled(pilot)
        assert "The field 'issue' is empty." in text_of(pilot.app)
        await pilot.press(*"12 {who}", "tab", *"me", "enter")
        await auntil(lambda: gateway_of(pilot.app).calls)

        [(name, call)] = gateway_of(pilot.app).calls
        assert Operations.create_session.__name__ == name
        assert {"issue": "12 {who}", "who": "me"} == call["fields"]
        new = call["new"]
        assert ("scripted", Mode.TMUX, "work", ("bug",)) == (new.agent, new.mode, new.account, new.tags)
        assert FIX.prompt == new.prompt


async def test_without_a_template_a_prompt_is_not_expanded() -> None:
    async with app().run_test(size=(120, 50)) as pilot:
        dialog = await opened(pilot)
        dialog.prompt_box.text = "Why {a.b}?"
        await pilot.press("enter")
        await auntil(lambda: gateway_of(pilot.app).calls)

        [(_, call)] = gateway_of(pilot.app).calls
        assert (None, "Why {a.b}?", ()) == (call["fields"], call["new"].prompt, call["new"].tags)


async def test_a_prompt_of_the_users_own_stays_and_is_not_expanded() -> None:
    async with app().run_test(size=(120, 50)) as pilot:
        dialog = await opened(pilot)
        dialog.prompt_box.text = "mine {x}"
        await pilot.press("right", "enter")
        await auntil(lambda: gateway_of(pilot.app).calls)

        assert "mine {x}" == dialog.prompt_box.text
        [(_, call)] = gateway_of(pilot.app).calls
        assert (None, "mine {x}", ("bug",)) == (call["fields"], call["new"].prompt, call["new"].tags)


@pytest.mark.parametrize(
    ("text", "said"),
    [("Fix {issue.id}", "belongs to no field"), ("Fix {nix}", "The template has no field 'nix'."), ("Go {who}", "")],
)
async def test_an_edited_prompt_has_the_fields_of_its_template_or_fewer(text: str, said: str) -> None:
    async with app().run_test(size=(120, 50)) as pilot:
        dialog = await chosen(pilot)
        dialog.prompt_box.text = text
        for box in dialog.template.boxes.query(LineInput):
            box.value = "x"
        await pilot.press("enter")
        await settled(pilot)

        assert said in text_of(pilot.app)
        assert [{"who": "x"}] * (not said) == [call["fields"] for _, call in gateway_of(pilot.app).calls]


async def test_another_template_has_its_own_fields_and_none_removes_them() -> None:
    async with app().run_test(size=(120, 50)) as pilot:
        dialog = await chosen(pilot, "right", "right")
        assert "The agent 'gemini' cannot be started here." in text_of(pilot.app)
        assert ("Look {x}", "gpu-1", 1) == (
            dialog.prompt_box.text,
            dialog.machine.value,
            len(dialog.template.boxes.query(LineInput)),
        )

        await pilot.press("right")
        await settled(pilot)
        assert ("", "", 0) == (
            dialog.prompt_box.text,
            dialog.machine.value,
            len(dialog.template.boxes.query(LineInput)),
        )


async def test_only_the_templates_of_the_folder_are_offered() -> None:
    async with app().run_test(size=(120, 50)) as pilot:
        dialog = await chosen(pilot)
        dialog.set_focus(dialog.folder.box)
        await pilot.pause()
        dialog.folder.box.value = "/other"
        dialog.set_focus(dialog.name_box)
        await auntil(lambda: not dialog.template.display, 20.0, what="no templates")

        assert (None, "") == (dialog.template.chosen, dialog.prompt_box.text)
