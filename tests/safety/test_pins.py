"""The guards that must never rot: each attack fails, and succeeds as soon as the guard is taken out.

Pinned elsewhere: the paste guard in tests/tmux/test_paste.py; `##`, and the `;` at a word's end, in
tests/tmux/test_hostile.py.
"""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon import paths
from kasmon.config import Config, local
from kasmon.demo.scratch import scratch_places
from kasmon.errors import (
    RequestClosedError,
    SessionNotFoundError,
    StaleRequestError,
    UnsafeFolderError,
)
from kasmon.host import process
from kasmon.host import server as host_server
from kasmon.host.asks import Asks
from kasmon.host.book import Book
from kasmon.host.terminals import Terminals
from kasmon.model.command import Answer, Launch, Mode
from kasmon.model.event import MessageSaid, Opened, RequestAnswered
from kasmon.model.permission import Decision, Request, SessionId
from kasmon.store.fleet import FleetFold
from kasmon.store.index import Index
from kasmon.store.local_trust import LocalTrust, Trusted
from kasmon.store.log import EventLog
from kasmon.supervisor import claim, create
from kasmon.supervisor.local_config import in_folder
from kasmon.tmux.server import Server
from kasmon.tui import ask_text, asking
from tests.fleets import asking as asks_for
from tests.fleets import command, fleet
from tests.host.house import House, do, prompt
from tests.host.puppet import Puppet, asked
from tests.safety.dash import Home
from tests.safety.mutation import without
from tests.scenes import kasmon, settled
from tests.tmux.asked import texts_of
from tests.tui.worlds import StillWorld, text_of
from tests.waiting import auntil, until

SECRET = "sk-ant-0123456789abcdefghijklmnopqrstuv"
TITLE = b"\x1b]2;\xc3\xa9\xe2\x9c\x93\x07"


@pytest.fixture
def house() -> Iterator[House]:
    root = Path(tempfile.mkdtemp(prefix="kss-", dir="/tmp"))
    built = House(root)
    yield built
    built.close()
    shutil.rmtree(root)


@pytest.fixture
def tmux() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="kss-", dir="/tmp"))
    server = Server(folder / "t.sock", environment={"PATH": os.environ["PATH"], "LC_ALL": "C"})
    server.start()
    yield server
    server.kill_server()
    shutil.rmtree(folder)


# Answers: the digest, and once only.


async def answered(house: House, *decisions: Decision, digest: str = "") -> tuple[list[BaseException], list[Decision]]:
    """What becomes of these answers to one request, one after the other: the refusals, and what the agent heard."""
    puppet = Puppet()
    launch = house.wants(backend="puppet")
    refusals: list[BaseException] = []
    async with house.hosting(puppet, launch):
        link = await house.linked()
        await prompt(link, "tidy up")
        puppet.say(asked("rm -rf build"))
        (request,) = await auntil(lambda: house.session().asks)
        for decision in decisions:
            try:
                await do(link, Answer(request=request.id, digest=digest or request.digest, decision=decision))
            except (StaleRequestError, RequestClosedError) as refusal:
                refusals.append(refusal)
        await link.aclose()
    return refusals, [wish.decision for wish in puppet.told if isinstance(wish, Answer)]


@pytest.mark.parametrize("guarded", [True, False])
def test_an_answer_to_another_text_reaches_nobody(house: House, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        without(monkeypatch, Asks, "checked", "answer.digest != request.digest", "False")

    refusals, heard = asyncio.run(answered(house, Decision.ALLOW, digest="0" * 64))

    assert (guarded, [] if guarded else [Decision.ALLOW]) == (bool(refusals), heard)


@pytest.mark.parametrize("guarded", [True, False])
def test_of_two_answers_one_is_heard(house: House, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    kept: dict[str, tuple[Request, Request]] = {}
    if not guarded:
        monkeypatch.setattr("kasmon.host.asks.KEPT", kept, raising=False)
        without(
            monkeypatch,
            Asks,
            "checked",
            "    if request is None or asked is None:",
            "    if request is not None and asked is not None:\n"
            "        KEPT[answer.request] = request, asked\n"
            "    request, asked = KEPT.get(answer.request, (request, asked))\n"
            "    if request is None or asked is None:",
        )

    refusals, heard = asyncio.run(answered(house, Decision.ALLOW, Decision.DENY))

    assert ([Decision.ALLOW] if guarded else [Decision.ALLOW, Decision.DENY]) == heard
    assert guarded == any(isinstance(refusal, RequestClosedError) for refusal in refusals)
    assert len(heard) == len(house.only(RequestAnswered))


# The card: deaf at first, and without secrets.


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_key_that_comes_with_the_card_is_no_answer(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        monkeypatch.setattr(asking, "DEAF_S", 0.0)
        monkeypatch.setattr(asking, "SILENCE_S", 0.0)
    app = kasmon(fleet(asks_for("fix-auth", command("fix-auth", "rm -rf build"))))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("i")
        card = await auntil(lambda: app.inbox.card, what="the card")
        await pilot.pause()
        card._look_at_clock()
        card._look_at_clock()  # of two looks the second arms, were it time; the clock stands still
        await pilot.press("a")
        await pilot.pause()

        assert isinstance(app.world, StillWorld)
        assert guarded == (not app.world.wished)


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_secret_is_not_on_the_card(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        monkeypatch.setattr(ask_text, "redact", lambda text, known=(): (text, 0))
    line = f"curl -H 'Authorization: Bearer {SECRET}' --user hunter2hunter2"
    app = kasmon(fleet(asks_for("fix-auth", command("fix-auth", line))), secrets=["hunter2hunter2"])
    async with app.run_test(size=(160, 40)) as pilot:
        await settled(pilot)
        await pilot.press("i")
        await pilot.pause()
        assert app.inbox.card is not None
        card = "\n".join(line.text for line in app.inbox.card._state.sheet.rows(200))

        assert guarded == (SECRET not in card)
        assert guarded == ("hunter2hunter2" not in card)
        assert "fix-auth" in text_of(app)


# tmux: what it is told, it takes for what it is.


def title_of(server: Server) -> str:
    """The title that a program gave itself, é✓, as it comes back."""
    program = f"import os\nos.write(1, {TITLE!r})\nos.read(0, 1)\n"
    pane = server.create("agent", [sys.executable, "-I", "-S", "-c", program]).pane_id
    until(lambda: server.run("display-message", "-p", "-t", pane, "#{pane_title}").strip() in ("é✓".encode(), b"__"))
    return texts_of(server, pane).title


@pytest.mark.parametrize("guarded", [True, False])
def test_a_text_comes_back_whole_where_there_is_no_locale(
    tmux: Server, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The guard is `-u`."""
    if not guarded:
        without(monkeypatch, Server, "run", '"-u", ', "")

    assert guarded == ("é✓" == title_of(tmux))


@pytest.mark.parametrize("guarded", [True, False])
def test_a_word_that_looks_like_a_flag_is_none(tmux: Server, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """The guard is `--`. Without it, tmux takes `-e` for its own, and the session gets a variable."""
    if not guarded:
        without(monkeypatch, Server, "create", '"--", *words', "*words")
    tmux.create("agent", ["-e", "PWNED=yes", "sleep", "60"])

    assert guarded == (b"PWNED=yes" not in tmux.run("show-environment", "-t", "=agent:"))
    started = tmux.run("display-message", "-p", "-t", "=agent:", "#{pane_start_command}")
    assert guarded == (b"-e PWNED=yes sleep 60" in started)


# Ids: what is no id of ours leads nowhere.


@pytest.mark.parametrize("guarded", [True, False])
def test_an_id_that_is_a_path_starts_nothing(house: House, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """A folder beside the state's own, with a launch file in it, is no session."""
    outside = house.places.state / "outside"
    outside.mkdir(mode=0o700)
    launch = Launch(session=SessionId("outside"), name="x", agent="x", mode=Mode.TMUX, backend="tmux", argv=("true",))
    (outside / "launch.json").write_bytes(msgspec.json.encode(launch))
    if not guarded:
        without(monkeypatch, Terminals, "_known", "not SESSION.fullmatch(session) or ", "")
    host = Terminals.__new__(Terminals)
    host._places = house.places
    known = False
    try:
        host._known(SessionId("../outside"))
        known = True
    except SessionNotFoundError:
        pass

    assert guarded == (not known)


@pytest.mark.parametrize("bad", ["../outside", "/etc", ".", "..", "-rf", "a/b", "A B", "x" * 65, "nüll", ""])
def test_a_host_of_what_is_no_id_leaves_at_once(
    house: House, bad: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in house.places.environment_variables().items():
        monkeypatch.setenv(name, value)
    before = sorted(house.places.state.rglob("*"))

    assert process.main([bad]) != 0
    assert before == sorted(house.places.state.rglob("*"))
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
def test_all_that_kasmon_makes_is_this_users_alone(home: Home) -> None:
    home.start("talker", "say hello\nask ls", environment=("TOKEN=x",))
    home.start("printer", agent="", mode=Mode.TMUX, argv=("cat",))
    environment = {**os.environ, **home.variables}
    index = Index(home.places.index)
    index.write(FleetFold(home.places), (), ())
    index.close()
    subprocess.run([sys.executable, "-P", "-m", "kasmon", "config", "ui.bell", "false"], env=environment, check=True)

    assert home.places.tmux_socket.is_socket()
    for made in (home.places.state, home.places.runtime, home.places.config):
        assert [] == open_to_others(made)


GUARDS = {
    "a log": (EventLog, "append", "0o600", "0o666"),
    "a session's folder": (claim, "claim", "mode=0o700", "mode=0o777"),
    "a socket": (host_server, "_bound", "0o177", "0o000"),
}


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("made", GUARDS)
def test_each_of_them_is_made_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, guarded: bool) -> None:
    if not guarded:
        owner, name, guard, instead = GUARDS[made]
        without(monkeypatch, owner, name, guard, instead)
    folder = Path(tempfile.mkdtemp(prefix="kss-", dir="/tmp"))
    try:
        match made:
            case "a log":
                EventLog(folder / "x").append(Opened(at=0.0, session=SessionId("x")))
            case "a session's folder":
                (folder / "s" / "kasmon" / "sessions").mkdir(parents=True)
                for made_by_us in (folder / "s", folder / "s" / "kasmon", folder / "s" / "kasmon" / "sessions"):
                    made_by_us.chmod(0o700)
                claim.claim(scratch_places(folder))
            case _:
                host_server._bound(folder / "x").close()

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


FOLDERS = {
    "a link": (linked, "folder.lstat()", "folder.stat()"),
    "writable by others": (writable, "facts.st_mode & 0o022", "False"),
    "another user's": (anothers, "facts.st_uid != os.geteuid()", "False"),
}


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("flaw", FOLDERS)
def test_a_folder_that_is_not_ours_alone_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flaw: str, guarded: bool
) -> None:
    make, guard, instead = FOLDERS[flaw]
    if not guarded:
        without(monkeypatch, paths, "private_folder", guard, instead)
    refused = False
    try:
        paths.private_folder(make(tmp_path))
    except UnsafeFolderError:
        refused = True

    assert guarded == refused


# What a repository brings along: it counts for just this content of just this folder.


def _other_content(repo: Path) -> Path:
    (repo / local.NAME).write_text("[agents.mine]\nprogram = './other'\n")
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


BROUGHT = {
    "content": (_other_content, "local.digest)", "self.digest)"),
    "folder": (_other_folder, "(local.root, local.device, local.inode,", "(self.root, self.device, self.inode,"),
    "place": (_in_its_place, "(local.root, local.device, local.inode,", "(local.root, self.device, self.inode,"),
    "link": (_through_a_link, "local.is_linked", "False"),
}


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("change", BROUGHT)
def test_what_a_repository_brings_along_counts_only_as_it_was_trusted(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, guarded: bool
) -> None:
    make, guard, instead = BROUGHT[change]
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / local.NAME).write_text("[agents.mine]\nprogram = './mine'\n")
    seen = local.look(repo)
    assert seen is not None
    LocalTrust(home.places).add(seen, 1.0)
    if not guarded:
        without(monkeypatch, Trusted, "is_of", guard, instead)

    here = in_folder(home.places, Config(), make(repo))

    assert guarded == ("mine" not in here.config.agents)


# Names: they never become part of a path.

NAMES = ["../../x", "-rf", "a/b", ".", "..", "CON", "~", "x" * 80, "n\u0303", "$(touch x)", "a\tb", "%s{0}"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_is_no_part_of_a_path(home: Home, name: str) -> None:
    launch = create.prepare(
        home.places, Config(), create.NewSession(name=name, agent="scripted", mode=Mode.SDK, workdir="/"), 0.0
    )

    made = {str(path.relative_to(home.path)) for path in home.path.rglob("*") if path.is_file()}
    session = f"s/kasmon/sessions/{launch.session}"
    assert {"s/kasmon/fleet.jsonl", f"{session}/env", f"{session}/launch.json"} == made


# Facts: whatever has to wait for the disk goes in the order in which it happened.


@pytest.mark.parametrize("guarded", [True, False])
def test_facts_that_wait_for_the_disk_go_in_order(house: House, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        without(monkeypatch, Book, "note", "self._unwritten.append(", "self._unwritten.appendleft(")
    launch = house.wants(backend="puppet")
    book, log = Book(house.places, launch.session), house.places.log(launch.session)
    whole = log.read_bytes()
    log.unlink()
    log.symlink_to("nowhere")  # a log that cannot be written
    for text in ("one", "two", "three"):
        assert not book.append(MessageSaid(at=1.0, text=text))
    log.unlink()
    log.write_bytes(whole)
    assert book.flush()

    said = [fact.text for fact, _ in EventLog(log).read() if isinstance(fact, MessageSaid)]
    assert guarded == (["one", "two", "three"] == said)
    assert {"one", "two", "three"} == set(said)
