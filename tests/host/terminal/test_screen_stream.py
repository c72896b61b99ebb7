"""What a client sees of a terminal: its rows, at once in focus, the newest only where it is slow."""

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.codec import Unpacker, from_host, pack
from kasmon.host.rpc.frames import (
    Blur,
    Hello,
    Paste,
    Scroll,
    SendKeys,
    TerminalCursor,
    TerminalModes,
    TerminalRows,
    Unwatch,
    Watch,
)
from tests.support.host.tmux_env import Screen, TmuxEnv, python, sh
from tests.support.tmux.sync_hub import end_window
from tests.support.wait import auntil

ME = "abcdefgh"
COUNT = "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; exec cat"

pytestmark = pytest.mark.usefixtures("in_tmux_env")


@contextlib.asynccontextmanager
async def showing(
    tmux: TmuxEnv, *argv: str, until: str = "", is_focused: bool = False
) -> AsyncIterator[tuple[HostLink, Screen]]:
    """Run *argv* and show it on a screen; begins once the screen has *until*, or anything."""
    async with tmux.serving() as link:
        await tmux.run(link, ME, *argv)
        screen = Screen(link, ME)
        if is_focused:
            screen.focus()
        else:
            screen.watch()
        await auntil(lambda: screen.has(until) if until else screen.pushes, what=f"{until!r} on the screen")
        yield link, screen


# Watching


async def test_a_watcher_gets_every_row_first_and_then_changed_ones(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *sh(r"printf 'one\ntwo\n'; read x; printf 'three\n'; exec cat"))
        await tmux.ready(ME)
        screen = Screen(link, session)
        screen.watch()
        await screen.until_has("two")
        first = screen.pushes[0]
        link.send(SendKeys(session=session, data=b"\r"))
        await screen.until_has("three")

        assert (True, 40, 120, 40) == (first.full, len(first.changed), first.columns, first.height)
        assert all(not rows.full and len(rows.changed) < 5 for rows in screen.pushes[1:])
        assert ["one", "two", "", "three", ""] == screen.rows[:5]


async def test_a_row_is_text_with_whole_styles_and_nothing_else(tmux: TmuxEnv) -> None:
    script = r"printf '\033[31mred\nstill\033[0m \033]0;title\007a\342\200\256b \033(0q\033(B\n'; exec cat"
    async with showing(tmux, *sh(script), until="still") as (_, screen):
        assert ["\x1b[0;31mred", "\x1b[0;31mstill\x1b[m ab ─"] == screen.rows[:2]


async def test_cursor_and_modes_come_with_the_rows(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *sh(r"printf '\033[?1049h\033[?1h\033[?1002h\033[?1006habc'; exec cat"))
        screen = Screen(link, ME)
        screen.watch()
        await auntil(lambda: screen.last is not None and screen.last.modes.mouse)

        assert screen.last
        assert TerminalCursor(3, 0, True, "block") == screen.last.cursor
        assert TerminalModes(mouse="button", mouse_sgr=True, cursor_keys=True, alternate=True) == screen.last.modes


async def test_a_watcher_gets_no_more_pushes_than_requested(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *python("import time\nfor i in range(10**6): print(i, flush=True); time.sleep(0.002)"))
        screen = Screen(link, ME)
        screen.watch(rate_hz=5.0)
        await auntil(lambda: screen.pushes)
        began, before = time.monotonic(), len(screen.pushes)
        await auntil(lambda: len(screen.pushes) >= before + 6)

        assert time.monotonic() - began > 6 / 5 * 0.7


async def test_a_client_that_stopped_watching_gets_no_pushes(tmux: TmuxEnv) -> None:
    async with showing(tmux, "cat") as (link, screen):
        link.send(Unwatch(session=screen.session))
        link.send(SendKeys(session=screen.session, data=b"hello\r"))
        await auntil(lambda: tmux.server.run("capture-pane", "-p", "-t", f"={ME}:").count(b"hello") == 2)
        await tmux.text(link, ME)

        assert not screen.has("hello")


async def test_a_new_watch_starts_from_the_beginning(tmux: TmuxEnv) -> None:
    async with showing(tmux, *sh("echo one; exec cat"), until="one") as (_, screen):
        screen.rows, screen.pushes = [], []
        screen.watch()
        await screen.until_has("one")

        assert screen.pushes[0].full


async def test_a_dead_agents_last_screen_is_still_there(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *sh("echo last words; exit 3"))
        await tmux.ended(ME)
        screen = Screen(link, ME)
        screen.watch()

        await screen.until_has("Pane is dead")
        assert screen.last
        assert not screen.last.cursor.visible


async def test_a_watcher_of_a_session_without_a_pane_gets_a_notice_and_the_screen_at_its_start(tmux: TmuxEnv) -> None:
    tmux.wants(ME, *sh("echo here; exec cat"))
    async with tmux.serving() as link:
        screen = Screen(link, ME)
        screen.watch()
        await auntil(lambda: screen.gone)
        assert "its pane no longer exists" == screen.gone
        await tmux.run(link, ME, *sh("echo here; exec cat"))

        await screen.until_has("here")


async def test_a_watcher_of_an_unknown_session_gets_an_error(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        screen = Screen(link, "nosuchid")
        screen.watch()

        await auntil(lambda: "nosuchid" in screen.gone)


async def test_a_closed_pane_is_reported(tmux: TmuxEnv) -> None:
    async with showing(tmux, "cat") as (_, screen):
        facts = tmux.facts(ME)
        assert facts
        end_window(tmux.server, facts.window_id)

        await auntil(lambda: screen.gone)


async def test_a_restarted_agent_is_shown_to_an_earlier_watcher(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *sh("echo run $$; exit 1"))
        await tmux.ended(ME)
        screen = Screen(link, ME)
        screen.watch()
        await screen.until_has("dead")
        tmux.wants(ME, *sh("echo anew; exec cat"))
        await tmux.run(link, ME, *sh("echo anew; exec cat"))

        await screen.until_has("anew")
        assert tmux.session(session).generation == 2


# Focus


async def test_a_key_is_answered_by_the_changed_row(tmux: TmuxEnv) -> None:
    async with showing(tmux, "cat", is_focused=True) as (link, screen):
        link.send(SendKeys(session=screen.session, data="é☃".encode()))
        await screen.until_has("é☃")

        assert [0] == [y for y, _ in screen.pushes[-1].changed]
        assert 2 == screen.pushes[-1].cursor.x


async def test_focus_gives_the_window_its_size_and_blur_leaves_it(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        screen = Screen(link, ME)
        screen.focus(90, 20)
        await auntil(lambda: screen.last and (screen.last.columns, screen.last.height) == (90, 20))
        link.send(Blur(session=session))
        seen = await tmux.pane(link, ME)

        assert (90, 20) == (seen.width, seen.height)
        assert b"" == tmux.server.run("show-options", "-w", "-v", "-t", f"={ME}:", "window-size").strip()


async def test_the_last_of_many_sizes_counts_and_an_empty_one_is_ignored(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, "cat")
        screen = Screen(link, ME)
        began = time.monotonic()
        for columns in range(60, 100):
            screen.focus(columns, 20)
            await asyncio.sleep(0.005)
        took = time.monotonic() - began
        screen.focus(0, 0)
        await auntil(lambda: screen.last and screen.last.columns == 99)

        assert len({rows.columns for rows in screen.pushes}) <= took / 0.1 + 3


async def test_the_last_focus_decides_the_size_and_both_clients_see_it(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        other = await tmux.link()
        one, two = Screen(link, ME), Screen(other, ME)
        one.focus(100, 30)
        await auntil(lambda: one.last and one.last.columns == 100)
        two.focus(80, 24)
        for screen in (one, two):
            await auntil(lambda screen=screen: screen.last and (screen.last.columns, screen.last.height) == (80, 24))  # type: ignore[misc]
        link.send(SendKeys(session=session, data=b"from one "))
        other.send(SendKeys(session=session, data=b"from two"))
        await one.until_has("from two")
        await two.until_has("from one")

        assert one.rows == two.rows
        await other.aclose()


REPORTS = sh("stty raw -echo; printf 'ready \\033[?1004h'; exec cat -v")
"""A program that asks for focus events, and prints what it reads."""


async def test_a_program_with_focus_events_gets_one_when_a_user_enters_and_leaves(tmux: TmuxEnv) -> None:
    async with showing(tmux, *REPORTS, until="ready ^[[O") as (link, screen):
        screen.focus()
        await screen.until_has("ready ^[[O^[[I")
        link.send(SendKeys(session=screen.session, data=b"k"))
        await screen.until_has("^[[Ik")
        link.send(Blur(session=screen.session))
        await screen.until_has("ready ^[[O^[[Ik^[[O")
        screen.focus()
        await screen.until_has("ready ^[[O^[[Ik^[[O^[[I")
        assert not screen.has("^[[I^[[I")


async def test_a_program_that_asks_for_no_focus_events_reads_none(tmux: TmuxEnv) -> None:
    argv = sh("stty raw -echo; printf 'ready '; exec cat -v")
    async with showing(tmux, *argv, until="ready", is_focused=True) as (link, screen):
        link.send(Blur(session=screen.session))
        screen.focus()
        link.send(SendKeys(session=screen.session, data=b"end"))
        await screen.until_has("ready end")


async def test_a_program_loses_the_focus_when_the_dashboard_or_the_session_changes(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *REPORTS)
        await tmux.run(link, "other", *REPORTS)
        dashboard, another = await tmux.link(), await tmux.link()
        screen, entered, other = Screen(link, ME), Screen(dashboard, ME), Screen(another, "other")
        screen.watch()
        other.watch()
        for each in (screen, other):
            await each.until_has("ready ^[[O")
        entered.focus()
        await screen.until_has("ready ^[[O^[[I")
        other.focus()
        await other.until_has("ready ^[[O^[[I")
        await screen.until_has("ready ^[[O^[[I^[[O")
        other.tell(Blur(session=other.session))
        await screen.until_has("ready ^[[O^[[I^[[O^[[I")
        await dashboard.aclose()
        await screen.until_has("ready ^[[O^[[I^[[O^[[I^[[O")


async def test_after_a_session_that_ended_in_focus_another_gets_the_focus_and_loses_it(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *REPORTS)
        await tmux.run(link, "other", *REPORTS)
        another = await tmux.link()
        ends, other = Screen(link, ME), Screen(another, "other")
        for each in (ends, other):
            each.watch()
            await each.until_has("ready ^[[O")
        ends.focus()
        await ends.until_has("ready ^[[O^[[I")
        tmux.server.run("kill-window", "-t", f"={ME}:")
        await tmux.ended(ME)
        other.focus()
        await other.until_has("ready ^[[O^[[I")
        another.send(Blur(session=other.session))
        await other.until_has("ready ^[[O^[[I^[[O")
        await another.aclose()


async def test_a_preview_is_not_resized(tmux: TmuxEnv) -> None:
    async with showing(tmux, "cat") as (_, screen):
        assert screen.last
        assert (120, 40) == (screen.last.columns, screen.last.height)


async def test_a_full_screen_change_arrives_whole(tmux: TmuxEnv) -> None:
    """The cursor's row comes first; the others follow."""
    script = r"""
import os, tty
tty.setraw(0); number = 0; os.write(1, b"ready")
while os.read(0, 99):
    number += 1
    os.write(1, b"\x1b[H" + b"\r\n".join(b"row %d of %d" % (y, number) for y in range(40)))
"""
    async with showing(tmux, *python(script), until="ready", is_focused=True) as (link, screen):
        for number in range(1, 20):
            link.send(SendKeys(session=screen.session, data=b"x"))
            want = [f"row {y} of {number}" for y in range(40)]
            await auntil(lambda want=want: want == [row.rstrip() for row in screen.rows])  # type: ignore[misc]


# History


async def test_a_client_that_scrolled_up_sees_the_history(tmux: TmuxEnv) -> None:
    async with showing(tmux, *sh(COUNT), until="line 99") as (link, screen):
        link.send(Scroll(session=screen.session, up=10))
        await screen.until_has("line 51")

        assert screen.last
        assert (10, 61) == (screen.last.scrolled, screen.last.history)
        assert [f"line {number}" for number in range(51, 91)] == screen.rows
        link.send(Scroll(session=screen.session, up=0))
        await screen.until_has("line 99")
        assert 0 == screen.last.scrolled


async def test_no_scrolling_beyond_the_first_line(tmux: TmuxEnv) -> None:
    async with showing(tmux, *sh(COUNT), until="line 99") as (link, screen):
        link.send(Scroll(session=screen.session, up=5000))
        await screen.until_has("line 0")

        assert screen.last
        assert 61 == screen.last.scrolled


async def test_a_scrolled_view_is_unchanged_while_new_lines_arrive(tmux: TmuxEnv) -> None:
    async with showing(tmux, *sh(COUNT), until="line 99") as (link, screen):
        link.send(Scroll(session=screen.session, up=20))
        await screen.until_has("line 41")
        assert screen.last
        tmux.server.run("send-keys", "-t", f"={ME}:", "more", "Enter")
        await auntil(lambda: screen.last and screen.last.history == 63)

        assert 22 == screen.last.scrolled
        assert "line 41" == screen.rows[0]
        link.send(Scroll(session=screen.session, up=23))
        await screen.until_has("line 38")
        assert "line 38" == screen.rows[0]


async def test_a_key_leads_back_to_the_bottom(tmux: TmuxEnv) -> None:
    async with showing(tmux, *sh(COUNT), until="line 99", is_focused=True) as (link, screen):
        link.send(Scroll(session=screen.session, up=30))
        await screen.until_has("line 31")
        link.send(SendKeys(session=screen.session, data=b"k"))

        await screen.until_has("line 99")
        assert screen.last
        assert 0 == screen.last.scrolled


async def test_a_full_screen_program_has_no_history(tmux: TmuxEnv) -> None:
    argv = sh(COUNT.replace("exec cat", r"printf '\033[?1049hfull'; exec cat"))
    async with showing(tmux, *argv, until="full", is_focused=True) as (link, screen):
        link.send(Scroll(session=screen.session, up=10))
        await tmux.text(link, ME)

        assert screen.has("full")
        assert screen.last
        assert 0 == screen.last.scrolled


# Those who are slow


async def test_a_client_that_does_not_read_delays_no_other_and_gets_the_newest_rows(tmux: TmuxEnv) -> None:
    script = (
        "import time\nfor i in range(10**9):\n"
        " print(f'\\033[2J\\033[H', *(f'frame {i} ' + 'x' * 100 for _ in range(38)), sep='\\n', flush=True)\n"
        " time.sleep(0.005)"
    )
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *python(script))
        await tmux.ready(ME)
        slow = socket.socket(socket.AF_UNIX)
        slow.connect(str(tmux.paths.tmux_host_socket))
        slow.sendall(pack(Hello(n=1)) + pack(Watch(session=session, rate_hz=0.0)))
        quick = Screen(link, ME)
        quick.watch(rate_hz=0.0)

        def frame_of(rows: list[str]) -> int:
            return max((int(row[1]) for row in map(re.compile(r"frame (\d+) x").match, rows) if row), default=0)

        await auntil(lambda: frame_of(quick.rows) > 400 and len(quick.pushes) > 400)
        seen = frame_of(quick.rows)
        slow.setblocking(False)
        unpacker, rows, pushes = Unpacker(), [""] * 40, 0
        while frame_of(rows) < seen:
            for body in unpacker.feed(await asyncio.get_running_loop().sock_recv(slow, 65536)):
                frame = from_host.decode(body)
                if isinstance(frame, TerminalRows):
                    pushes += 1
                    for y, row in frame.changed:
                        rows[y] = row
        slow.close()

        assert pushes < len(quick.pushes) / 2


async def test_a_flood_is_shown_while_it_lasts(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *python("i = 0\nwhile True: i += 1; print('flood', i)"))
        screen = Screen(link, ME)
        screen.watch()

        def at() -> int:
            return max((int(row[6:]) for row in screen.rows if re.fullmatch(r"flood \d+", row)), default=0)

        await auntil(lambda: at() > 1000)
        seen = len(screen.pushes)
        await auntil(lambda: len(screen.pushes) >= seen + 80, 10, "so many pushes; a pane that nobody sees has pauses")


async def test_a_disconnected_client_is_dropped(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        other = await tmux.link()
        other.send(Watch(session=session))
        other.send(Hello(n=99))
        await other.aclose()
        screen = Screen(link, ME)
        screen.focus()
        await auntil(lambda: screen.pushes)
        link.send(SendKeys(session=session, data=b"still here"))

        await screen.until_has("still here")


# What it costs


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="ended processes are counted in /proc")
async def test_watching_typing_and_scrolling_start_no_process(tmux: TmuxEnv) -> None:
    process = tmux.open()
    link = await tmux.link()
    session = await tmux.run(link, ME, *sh(COUNT))
    await tmux.ready(ME)
    screen = Screen(link, ME)
    screen.focus()
    await screen.until_has("line 99")

    async def used_meanwhile(typed: str) -> int:
        before = used_by_children(process.pid)
        for number in range(20):
            link.send(Scroll(session=session, up=number % 5))
            link.send(SendKeys(session=session, data=typed.encode()))
            await tmux.text(link, ME)
            await tmux.pane(link, ME)
        await screen.until_has(typed * 20)
        return used_by_children(process.pid) - before

    used = [await used_meanwhile("j"), await used_meanwhile("k"), await used_meanwhile("l")]
    assert 0 in used, used  # on a busy machine one that the start began may end meanwhile
    before = used_by_children(process.pid)

    link.send(Paste(session=session, text="p" * 50))  # the one exception; and it shows that the count counts
    await screen.until_has("p" * 50)
    assert before < used_by_children(process.pid)
    await link.aclose()


def used_by_children(pid: int) -> int:
    """What the children of *pid* that have ended used, in page faults: every process adds some hundreds."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[8]) + int(fields[10])


# What tmux keeps to itself


async def test_a_clipboard_text_is_sent_to_the_client_in_the_terminal_and_to_no_other(tmux: TmuxEnv) -> None:
    script = r"while read x; do printf '\033]52;c;aGVsbG8=\007%s\n' done-$x; done"
    async with tmux.serving() as link, tmux.client() as other:
        await tmux.run(link, ME, *sh(script))
        inside, beside = Screen(link, ME), Screen(other, ME)
        beside.watch()
        inside.focus()
        await tmux.ready(ME)
        inside.tell(SendKeys(session=inside.session, data=b"1\r"))
        await inside.until_has("done-1")
        await beside.until_has("done-1")
        await auntil(lambda: inside.clips)

        assert (["hello"], []) == (inside.clips, beside.clips)


async def test_the_shape_of_the_cursor_is_the_one_that_the_program_asked_for(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *sh(r"read x; printf '\033[4 qunder'; read x; printf '\033[6 qbar'; exec cat"))
        screen = Screen(link, ME)
        screen.focus()
        await tmux.ready(ME)
        for word, shape in (("under", "underline"), ("bar", "bar")):
            screen.tell(SendKeys(session=screen.session, data=b"\r"))
            await screen.until_has(word)
            await auntil(lambda shape=shape: screen.last is not None and screen.last.cursor.shape == shape)  # type: ignore[misc]
