"""The registered machines: listed with their state, added by an ssh destination, removed after a question."""

from typing import cast

import msgspec
from textual.pilot import Pilot

from kasmon.errors import NotInstalledError
from kasmon.model.commands import Mode
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.common import ConfirmDialog
from kasmon.tui.dialogs.machines import AddMachineDialog, MachinesDialog
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.keymap import Keys
from tests.support.bus.sample_machines import MACHINES
from tests.support.dashboard_scenes import kasmon, settled
from tests.support.sample_fleet import StillClock, fleet, idle
from tests.support.tui.fake_gateway import called, gateway_of, text_of
from tests.support.wait import auntil


async def opened(pilot: Pilot[None]) -> None:
    """The dialog, once the machines are known."""
    app = cast(Kasmon, pilot.app)
    gateway_of(pilot.app).registered.put_nowait(MACHINES)
    await settled(pilot)
    await auntil(lambda: app.machines, what="the machines")
    app.key_dispatcher.run(Keys.MACHINES)
    await auntil(lambda: isinstance(app.screen, MachinesDialog), what="the dialog")
    await pilot.pause()


async def test_each_machine_is_listed_with_its_state_and_details() -> None:
    async with kasmon(fleet(idle("docs"))).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        shown = text_of(pilot.app)
        await pilot.press("G", "down", "down")
        await pilot.pause()

        assert "build             connected 2m" in shown
        assert "ssh you@build; kasmon 0.1.0, 0 sessions" in shown
        assert "lab               unreachable since 14:11 (2 min)" in shown
        assert "Unreachable: no sign of life for 10 s." in text_of(pilot.app)


async def test_a_machine_is_removed_after_a_confirmation() -> None:
    async with kasmon(fleet(idle("docs"))).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("down", "X")
        await pilot.pause()
        assert "Remove gpu-1, and the copies of its sessions here?" in text_of(pilot.app)
        assert [] == gateway_of(pilot.app).calls
        cast(StillClock, cast(Kasmon, pilot.app).clock).forward(1)
        await pilot.press("y")
        await auntil(lambda: gateway_of(pilot.app).calls, what="the removal")

        assert [called(Operations.remove_machine, "gpu-1")] == gateway_of(pilot.app).calls


async def test_a_machine_is_added_by_name_and_ssh_destination() -> None:
    async with kasmon(fleet(idle("docs"))).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("a")
        await auntil(lambda: isinstance(pilot.app.screen, AddMachineDialog), what="the dialog")
        await pilot.press(*"gpu-2", "enter", *"you@gpu2", "enter")
        await auntil(lambda: gateway_of(pilot.app).calls, what="the registration")

        assert [called(Operations.add_machine, "gpu-2", "you@gpu2")] == gateway_of(pilot.app).calls


async def test_a_new_session_on_a_registered_machine_is_started_by_kasmon_there_in_its_mode() -> None:
    async with kasmon(fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        app, gateway = cast(Kasmon, pilot.app), gateway_of(pilot.app)
        gateway.hosts = ("box",)
        gateway.registered.put_nowait(MACHINES)
        await auntil(lambda: app.machines, what="the machines")
        await pilot.press("n")
        await pilot.press("x", "tab", "tab", "right", *["tab"] * 3, "enter")
        await auntil(lambda: "local; machines: build, gpu-1, lab; ssh hosts: box" in text_of(pilot.app))
        await pilot.press(*"gpu-1", "enter")
        await auntil(lambda: gateway.calls, what="the start")

        name, arguments = gateway.calls[0]
        assert ("start_there", "gpu-1") == (name, arguments["machine"])
        assert ("x", "claude", Mode.SDK) == (arguments["new"].name, arguments["new"].agent, arguments["new"].mode)


async def test_a_machine_without_kasmon_gets_it_after_a_confirmation() -> None:
    async with kasmon(fleet(idle("docs"))).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        gateway = gateway_of(pilot.app)
        gateway.refusing = NotInstalledError("kasmon is not installed on 'gpu2'.")
        await pilot.press("a")
        await auntil(lambda: isinstance(pilot.app.screen, AddMachineDialog), what="the dialog")
        await pilot.press(*"gpu-2", "enter", *"gpu2", "enter")
        await auntil(lambda: isinstance(pilot.app.screen, ConfirmDialog), what="the question")
        await pilot.pause()
        question = text_of(pilot.app)
        await pilot.press("enter")
        assert [called(Operations.add_machine, "gpu-2", "gpu2")] == gateway.calls
        gateway.refusing = None
        cast(StillClock, cast(Kasmon, pilot.app).clock).forward(1)
        await pilot.press("y")
        await auntil(lambda: len(gateway.calls) == 2, what="the installation")
        await auntil(lambda: isinstance(pilot.app.screen, MachinesDialog), what="the end of the dialog")

        assert called(Operations.add_machine, "gpu-2", "gpu2", install=True) == gateway.calls[1]
        assert "kasmon is not installed on gpu2." in question
        assert "~/.local/share/kasmon/venv?" in question


async def test_a_wrong_clock_is_named() -> None:
    async with kasmon(fleet(idle("docs"))).run_test(size=(100, 30)) as pilot:
        status, *others = MACHINES
        presence = msgspec.structs.replace(status.presence, clock_offset_s=-90.0)
        gateway_of(pilot.app).registered.put_nowait((msgspec.structs.replace(status, presence=presence), *others))
        await auntil(lambda: cast(Kasmon, pilot.app).machines, what="the machines")
        cast(Kasmon, pilot.app).key_dispatcher.run(Keys.MACHINES)
        await settled(pilot)

        assert "Its clock is 1 min 30 s behind this one." in text_of(pilot.app)
