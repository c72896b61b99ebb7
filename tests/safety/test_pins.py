"""The guards that must never rot: each attack fails, and succeeds as soon as the guard is taken out.

Pinned elsewhere: the paste guard in tests/tmux/test_paste.py; `##`, and the `;` at a word's end, in
tests/tmux/test_hostile.py.
"""

import asyncio
import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon import errors, paths
from kasmon.config import Config, folder_config
from kasmon.demo.scratch import scratch_paths
from kasmon.host.journal import session_log as book_module
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc import server as host_server
from kasmon.host.session.request_registry import RequestRegistry
from kasmon.host.structured import host as process
from kasmon.host.terminal import host as terminals
from kasmon.host.terminal.host import TmuxHost
from kasmon.model.commands import Answer, Launch, Mode
from kasmon.model.events import LogOpened, MessageWritten, RequestAnswered
from kasmon.model.permission import Decision, SessionId
from kasmon.model.transcript import request_text
from kasmon.store.event_log import EventLog
from kasmon.store.fleet_cache import FleetCache
from kasmon.store.fleet_index import FleetIndex
from kasmon.store.trusted_folders import TrustedContent, TrustedFolders
from kasmon.supervisor.sessions import create, names
from kasmon.supervisor.sessions.folder_config import in_folder
from kasmon.tmux.server import TmuxServer
from kasmon.tui.permissions import queue
from tests.support.agents.fake_agent import FakeAgent, asked
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.host.env import Env, do, prompt
from tests.support.sample_fleet import asking as asks_for
from tests.support.sample_fleet import command, fleet
from tests.support.tmux.sync_hub import texts_of
from tests.support.tui.dashboard import Home
from tests.support.tui.fake_gateway import FakeGateway, text_of
from tests.support.wait import auntil, until

SECRET = "sk-ant-0123456789abcdefghijklmnopqrstuv"
TITLE = b"\x1b]2;\xc3\xa9\xe2\x9c\x93\x07"


@pytest.fixture
def env() -> Iterator[Env]:
    root = Path(tempfile.mkdtemp(prefix="kss-", dir="/tmp"))
    built = Env(root)
    yield built
    built.close()
    shutil.rmtree(root)


@pytest.fixture
def tmux() -> Iterator[TmuxServer]:
    folder = Path(tempfile.mkdtemp(prefix="kss-", dir="/tmp"))
    server = TmuxServer(folder / "t.sock", environment={"PATH": os.environ["PATH"], "LC_ALL": "C"})
    server.start()
    yield server
    server.kill_server()
    shutil.rmtree(folder)


# Answers: the digest, and once only.


async def answered(env: Env, *decisions: Decision, digest: str = "") -> tuple[list[BaseException], list[Decision]]:
    """What becomes of these answers to one request, one after the other: the refusals, and what the agent heard."""
    fake = FakeAgent()
    launch = env.wants(backend="fake")
    refusals: list[BaseException] = []
    async with env.hosting(fake, launch):
        link = await env.linked()
        await prompt(link, "tidy up")
        fake.say(asked("rm -rf build"))
        (request,) = await auntil(lambda: env.session().requests)
        for decision in decisions:
            try:
                await do(link, Answer(request=request.id, digest=digest or request.digest, decision=decision))
            except (errors.StaleRequestError, errors.RequestClosedError) as refusal:
                refusals.append(refusal)
        await link.aclose()
    return refusals, [wish.decision for wish in fake.told if isinstance(wish, Answer)]


@pytest.mark.parametrize("guarded", [True, False])
def test_an_answer_to_another_text_reaches_no_agent(env: Env, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        checked = RequestRegistry.require_answerable

        def credulous(asks: RequestRegistry, answer: Answer) -> Any:
            request = asks._log_writer.session.open_request(answer.request)
            return checked(asks, msgspec.structs.replace(answer, digest=request.digest if request else answer.digest))

        monkeypatch.setattr(RequestRegistry, "require_answerable", credulous)

    refusals, heard = asyncio.run(answered(env, Decision.ALLOW, digest="0" * 64))

    assert (guarded, [] if guarded else [Decision.ALLOW]) == (bool(refusals), heard)


@pytest.mark.parametrize("guarded", [True, False])
def test_one_of_two_answers_is_accepted(env: Env, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        checked, kept = RequestRegistry.require_answerable, dict[str, Any]()

        def forgetful(asks: RequestRegistry, answer: Answer) -> Any:
            with contextlib.suppress(errors.RequestClosedError):
                kept[answer.request] = checked(asks, answer)
            return kept[answer.request]

        monkeypatch.setattr(RequestRegistry, "require_answerable", forgetful)

    refusals, heard = asyncio.run(answered(env, Decision.ALLOW, Decision.DENY))

    assert ([Decision.ALLOW] if guarded else [Decision.ALLOW, Decision.DENY]) == heard
    assert guarded == any(isinstance(refusal, errors.RequestClosedError) for refusal in refusals)
    assert len(heard) == len(env.only(RequestAnswered))


# The card: deaf at first, and without secrets.


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_key_pressed_as_the_card_opens_is_no_answer(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        monkeypatch.setattr(queue, "DEAF_S", 0.0)
        monkeypatch.setattr(queue, "SILENCE_S", 0.0)
    async with run_app(app := kasmon(fleet(asks_for("fix-auth", command("fix-auth", "rm -rf build"))))) as pilot:
        await pilot.press("i")
        card = await auntil(lambda: app.permissions.card, what="the card")
        await pilot.pause()
        card.view.update_armed()
        card.view.update_armed()  # of two looks the second arms, were it time; the clock stands still
        await pilot.press("a")
        await pilot.pause()

        assert isinstance(app.gateway, FakeGateway)
        assert guarded == (not app.gateway.calls)


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_secret_is_not_on_the_card(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        monkeypatch.setattr(request_text, "redact", lambda text, known=(): (text, 0))
    line = f"curl -H 'Authorization: Bearer {SECRET}' --user hunter2hunter2"
    app = kasmon(fleet(asks_for("fix-auth", command("fix-auth", line))), secrets=["hunter2hunter2"])
    async with run_app(app, (160, 40)) as pilot:
        await pilot.press("i")
        await pilot.pause()
        assert app.permissions.card is not None
        card = "\n".join(line.text for line in app.permissions.card.view.state.sheet.rows(200))

        assert guarded == (SECRET not in card)
        assert guarded == ("hunter2hunter2" not in card)
        assert "fix-auth" in text_of(app)


# tmux: what it is told, it takes for what it is.


def title_of(server: TmuxServer) -> str:
    """The title that a program gave itself, é✓, as it comes back."""
    program = f"import os\nos.write(1, {TITLE!r})\nos.read(0, 1)\n"
    pane = server.create("agent", [sys.executable, "-I", "-S", "-c", program]).pane_id
    until(lambda: server.run("display-message", "-p", "-t", pane, "#{pane_title}").strip() in ("é✓".encode(), b"__"))
    return texts_of(server, pane).title


@pytest.mark.parametrize("guarded", [True, False])
def test_a_text_is_preserved_without_a_locale(tmux: TmuxServer, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """The guard is `-u`."""
    if not guarded:
        run = subprocess.run
        monkeypatch.setattr(subprocess, "run", lambda argv, **more: run([w for w in argv if w != "-u"], **more))

    assert guarded == ("é✓" == title_of(tmux))


@pytest.mark.parametrize("guarded", [True, False])
def test_a_prompt_that_looks_like_a_flag_is_text(
    tmux: TmuxServer, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The guard is `--`. Without it, tmux takes `-e` for its own, and the session gets a variable."""
    if not guarded:
        run = subprocess.run
        monkeypatch.setattr(subprocess, "run", lambda argv, **more: run([w for w in argv if w != "--"], **more))
    tmux.create("agent", ["-e", "PWNED=yes", "sleep", "60"])

    assert guarded == (b"PWNED=yes" not in tmux.run("show-environment", "-t", "=agent:"))
    started = tmux.run("display-message", "-p", "-t", "=agent:", "#{pane_start_command}")
    assert guarded == (b"-e PWNED=yes sleep 60" in started)


# Ids: what is no id of ours leads nowhere.


@pytest.mark.parametrize("guarded", [True, False])
def test_an_id_that_is_a_path_starts_no_host(env: Env, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """A folder beside the state's own, with a launch file in it, is no session."""
    outside = env.paths.state / "outside"
    outside.mkdir(mode=0o700)
    launch = Launch(session=SessionId("outside"), name="x", agent="x", mode=Mode.TMUX, backend="tmux", argv=("true",))
    (outside / "launch.json").write_bytes(msgspec.json.encode(launch))
    if not guarded:
        monkeypatch.setattr(terminals, "SESSION", re.compile(".*"))
    host = TmuxHost.__new__(TmuxHost)
    host._paths = env.paths
    known = False
    try:
        host._load_launch(SessionId("../outside"))
        known = True
    except errors.SessionNotFoundError:
        pass

    assert guarded == (not known)


@pytest.mark.parametrize("bad", ["../outside", "/etc", ".", "..", "-rf", "a/b", "A B", "x" * 65, "nüll", ""])
def test_a_host_of_an_invalid_id_exits_at_once(
    env: Env, bad: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in env.paths.environment_variables().items():
        monkeypatch.setenv(name, value)
    before = sorted(env.paths.state.rglob("*"))

    assert process.main([bad]) != 0
    assert before == sorted(env.paths.state.rglob("*"))
    assert capsys.readouterr().err


# Files: for this user only, even where the umask allows more.


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Everything below *folder* that others can do anything with."""
    return [
        f"{path} {stat.filemode(path.lstat().st_mode)}"
        for path in [folder, *sorted(folder.rglob("*"))]
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]


@pytest.mark.usefixtures("open_umask")
def test_every_file_of_kasmon_is_private_to_its_user(home: Home) -> None:
    home.start("talker", "say hello\nask ls", environment=("TOKEN=x",))
    home.start("printer", agent="", mode=Mode.TMUX, argv=("cat",))
    environment = {**os.environ, **home.variables}
    index = FleetCache(home.paths.index)
    index.write(FleetIndex(home.paths), (), ())
    index.close()
    subprocess.run([sys.executable, "-P", "-m", "kasmon", "config", "ui.bell", "false"], env=environment, check=True)

    assert home.paths.tmux_socket.is_socket()
    for made in (home.paths.state, home.paths.runtime, home.paths.config):
        assert [] == open_to_others(made)


def _with_any_mode(patch: pytest.MonkeyPatch) -> None:
    """Have every file be made as open as the umask allows, and stay so, whatever is asked for."""
    real_open, real_mkdir = os.open, os.mkdir
    patch.setattr(os, "open", lambda path, flags, mode=0o777, **more: real_open(path, flags, 0o666, **more))
    patch.setattr(os, "mkdir", lambda path, mode=0o777, **more: real_mkdir(path, 0o777, **more))
    patch.setattr(os, "chmod", lambda path, mode, **more: None)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize(("made", "mode"), [("a log", 0o600), ("a session's folder", 0o700), ("a socket", 0o600)])
def test_every_function_that_makes_a_file_sets_its_mode(
    monkeypatch: pytest.MonkeyPatch, made: str, mode: int, guarded: bool
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="kss-", dir="/tmp"))
    for above in (folder / "s", folder / "s" / "kasmon", folder / "s" / "kasmon" / "sessions"):
        above.mkdir(mode=0o700)
    try:
        with monkeypatch.context() as patch:
            if not guarded:
                _with_any_mode(patch)
            path = folder / "x"
            match made:
                case "a log":
                    EventLog(path).append(LogOpened(at=0.0, session=SessionId("x")))
                case "a session's folder":
                    paths = scratch_paths(folder)
                    path = paths.folder(names.claim(paths))
                case _:
                    host_server.bind(path).close()

        assert guarded == (mode == stat.S_IMODE(path.stat().st_mode))
        assert guarded == ([] == open_to_others(folder))
    finally:
        shutil.rmtree(folder)


def linked(folder: Path) -> Path:
    (folder / "theirs").mkdir(mode=0o700)
    (folder / "kasmon").symlink_to(folder / "theirs")
    return folder / "kasmon"


def writable(folder: Path) -> Path:
    (folder / "kasmon").mkdir()
    (folder / "kasmon").chmod(0o770)
    return folder / "kasmon"


def anothers(folder: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (folder / "kasmon").mkdir(mode=0o700)
    os.chown(folder / "kasmon", 65534, 65534)
    return folder / "kasmon"


def _followed(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(Path, "lstat", Path.stat)


def _taken_for_private(patch: pytest.MonkeyPatch, folder: Path) -> None:
    lstat = Path.lstat

    def closed(path: Path) -> os.stat_result:
        facts = lstat(path)
        return os.stat_result((facts.st_mode & ~0o077, *facts[1:]))

    patch.setattr(Path, "lstat", closed)


def _taken_for_ours(patch: pytest.MonkeyPatch, folder: Path) -> None:
    uid = folder.lstat().st_uid
    patch.setattr(os, "geteuid", lambda: uid)


FOLDERS = {
    "a link": (linked, _followed),
    "writable by others": (writable, _taken_for_private),
    "another user's": (anothers, _taken_for_ours),
}


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("flaw", FOLDERS)
def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flaw: str, guarded: bool
) -> None:
    make, blind = FOLDERS[flaw]
    folder = make(tmp_path)
    if not guarded:
        blind(monkeypatch, folder)
    refused = False
    try:
        paths.private_folder(folder)
    except errors.UnsafeFolderError:
        refused = True

    assert guarded == refused


# What a repository brings along: it counts for just this content of just this folder.


def _other_content(repo: Path) -> Path:
    (repo / folder_config.NAME).write_text("[agents.mine]\nprogram = './other'\n")
    return repo


def _other_folder(repo: Path) -> Path:
    shutil.copytree(repo, repo.with_name("copy"))
    return repo.with_name("copy")


def _in_its_place(repo: Path) -> Path:
    repo.rename(repo.with_name("old"))
    shutil.copytree(repo.with_name("old"), repo)
    return repo


def _through_a_link(repo: Path) -> Path:
    repo.with_name("link").symlink_to(repo)
    return repo.with_name("link")


BROUGHT: dict[str, tuple[Any, tuple[str, ...]]] = {
    "content": (_other_content, ("digest",)),
    "folder": (_other_folder, ("root", "device", "inode")),
    "place": (_in_its_place, ("device", "inode")),
    "link": (_through_a_link, ("is_linked",)),
}
"""What is done to it, and what of the look at it tells of that."""


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("change", BROUGHT)
def test_a_config_in_a_repository_applies_only_as_it_was_trusted(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, guarded: bool
) -> None:
    make, tells = BROUGHT[change]
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / folder_config.NAME).write_text("[agents.mine]\nprogram = './mine'\n")
    seen = folder_config.read_folder_config(repo)
    assert seen is not None
    TrustedFolders(home.paths).add(seen, 1.0)
    if not guarded:
        is_of, before = TrustedContent.is_of, {name: getattr(seen, name) for name in tells}
        monkeypatch.setattr(
            TrustedContent, "is_of", lambda trusted, now: is_of(trusted, msgspec.structs.replace(now, **before))
        )

    assert guarded == ("mine" not in in_folder(home.paths, Config(), make(repo)).config.agents)


# Names: they never become part of a path.

NAMES = ["../../x", "-rf", "a/b", ".", "..", "CON", "~", "x" * 80, "n\u0303", "$(touch x)", "a\tb", "%s{0}"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_is_no_part_of_a_path(home: Home, name: str) -> None:
    launch = create.prepare(
        home.paths, Config(), create.NewSession(name=name, agent="scripted", mode=Mode.SDK, workdir="/"), 0.0
    )

    made = {str(path.relative_to(home.path)) for path in home.path.rglob("*") if path.is_file()}
    session = f"s/kasmon/sessions/{launch.session}"
    assert {"s/kasmon/fleet.jsonl", f"{session}/env", f"{session}/launch.json"} == made


# Facts: whatever has to wait for the disk goes in the order in which it happened.


class _Backwards(deque[Any]):
    append = deque.appendleft


@pytest.mark.parametrize("guarded", [True, False])
def test_events_that_wait_for_the_disk_are_written_in_order(
    env: Env, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(book_module, "deque", _Backwards)
    launch = env.wants(backend="fake")
    book, log = SessionLog(env.paths, launch.session), env.paths.log(launch.session)
    whole = log.read_bytes()
    log.unlink()
    log.symlink_to("nowhere")  # a log that cannot be written
    for text in ("one", "two", "three"):
        assert not book.append(MessageWritten(at=1.0, text=text))
    log.unlink()
    log.write_bytes(whole)
    assert book.flush()

    said = [fact.text for fact in EventLog(log).events() if isinstance(fact, MessageWritten)]
    assert guarded == (["one", "two", "three"] == said)
    assert {"one", "two", "three"} == set(said)
