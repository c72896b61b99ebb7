"""Commands for sessions, on many at once; and a session of the user's own tmux.

That is listed when asked, adopted, watched, typed into; nothing of it is ever changed.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.config.folder_config import NAME
from tests.support.cli.cli_runner import LIMIT_S, Cli
from tests.support.wait import until

SIZES = "#{session_name} #{window_name} #{window_width}x#{window_height} #{pane_id} #{pane_pid} #{pane_dead}"


class Mine:
    """The tmux that a user started, with a session `work` of 90x30 and one `other` of 70x20."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "mine.sock"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
        self.run("-f", "/dev/null", "new-session", "-d", "-s", "work", "-n", "main", "-x", "90", "-y", "30", "/bin/sh")
        self.run("new-session", "-d", "-s", "other", "-n", "side", "-x", "70", "-y", "20", "/bin/cat")
        self.run("set-environment", "-t", "work", "SSH_AUTH_SOCK", "/of/the/user")

    def run(self, *argv: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self.socket), *argv], capture_output=True, text=True, env=self.environment, timeout=60
        )
        return done.stdout

    @property
    def state(self) -> tuple[str, ...]:
        """All that an adoption must leave as it is: names, sizes, panes, options, buffers, environment."""
        return (
            self.run("list-panes", "-a", "-F", SIZES),
            self.run("show-options", "-g"),
            self.run("show-options", "-gw"),
            self.run("show-options", "-s"),
            self.run("show-options", "-t", "work"),
            self.run("show-hooks", "-g"),
            self.run("list-buffers"),
            self.run("show-environment", "-t", "work"),
        )

    def screen(self, target: str = "work:") -> str:
        return self.run("capture-pane", "-p", "-t", target)

    def close(self) -> None:
        self.run("kill-server")


@pytest.fixture
def mine() -> Iterator[Mine]:
    folder = Path(tempfile.mkdtemp(prefix="kmt", dir="/tmp"))
    own = Mine(folder)
    yield own
    own.close()
    shutil.rmtree(folder)


def adopted(kasmon: Cli, mine: Mine, target: str = "work", *more: str) -> str:
    done = kasmon("adopt", target, "--socket", str(mine.socket), *more)
    assert 0 == done.code, done.err
    return done.out.strip()


def test_its_panes_are_listed_when_asked(kasmon: Cli, mine: Mine) -> None:
    panes = kasmon.json("ls", "--tmux", "--socket", str(mine.socket))["panes"]

    assert ["other:0.0", "work:0.0"] == [pane["target"] for pane in panes]
    assert ("side", 70, 20, "") == tuple(panes[0][name] for name in ("window", "width", "height", "adopted"))
    table = kasmon("ls", "--tmux", "--socket", str(mine.socket)).out
    assert "work:0.0" in table
    assert "90x30" in table


def test_adopting_lists_what_the_agent_will_notice_and_changes_nothing(kasmon: Cli, mine: Mine) -> None:
    before = mine.state
    done = kasmon("adopt", "work", "--socket", str(mine.socket))
    session = kasmon.json("show", done.out.strip())["session"]

    assert 0 == done.code
    assert "one more client in `list-clients`" in done.err
    assert before == mine.state
    assert ("work", "work:0.0", "tmux") == (session["name"], session["adopted"], session["mode"])
    assert "control-mode" in mine.run("list-clients", "-F", "#{client_flags}")
    watched = {
        pane["target"]: pane["adopted"] for pane in kasmon.json("ls", "--tmux", "--socket", str(mine.socket))["panes"]
    }
    assert {"work:0.0": done.out.strip(), "other:0.0": ""} == watched


def test_an_adopted_pane_can_be_read_and_typed_into(kasmon: Cli, mine: Mine) -> None:
    session = adopted(kasmon, mine, "other", "--name", "cat")
    before = mine.state
    kasmon.json("send", session, "hello there", "--when", "now")
    until(lambda: mine.screen("other:").count("hello there") == 2, LIMIT_S, "its echo")

    assert "hello there" in kasmon("read", session).out
    assert before == mine.state
    assert (70, 20) == tuple(kasmon.json("show", session)["session"]["pane"][name] for name in ("width", "height"))


def test_a_plain_command_in_an_adopted_pane_is_working(kasmon: Cli, mine: Mine) -> None:
    mine.run("new-session", "-d", "-s", "train", "exec sleep 1000")
    until(lambda: "sleep" in mine.run("list-panes", "-a", "-F", "#{pane_current_command}"))
    assert 0 == kasmon("wait", adopted(kasmon, mine, "train"), "--for", "working", "--timeout", "20").code

    shell = adopted(kasmon, mine, "work")
    assert 0 == kasmon("wait", shell, "--for", "idle", "--timeout", "20").code
    assert "launch" != kasmon.json("show", shell)["session"]["source"]


WISHES = {"stop": ("your own tmux", 4), "restart": ("your own tmux", 4), "move": ("your own tmux", 4)}


@pytest.mark.parametrize("wish", WISHES)
def test_a_command_that_would_end_or_restart_an_adopted_pane_is_refused(kasmon: Cli, mine: Mine, wish: str) -> None:
    session, before = adopted(kasmon, mine), mine.state
    words, code = WISHES[wish]
    done = kasmon(wish, session, *(("--to", "sdk") if wish == "move" else ()))

    assert code == done.code, done.err
    assert words in done.err
    assert before == mine.state


def test_a_rename_changes_only_kasmons_name(kasmon: Cli, mine: Mine) -> None:
    session, before = adopted(kasmon, mine), mine.state

    assert "mine" == kasmon.json("rename", session, "mine")["session"]["name"]
    assert before == mine.state


def test_rm_releases_an_adopted_pane_which_keeps_running(kasmon: Cli, mine: Mine) -> None:
    session, before = adopted(kasmon, mine), mine.state
    kasmon.json("rm", session)

    assert [] == kasmon.json("ls")["sessions"]
    assert before == mine.state
    assert adopted(kasmon, mine)


def test_the_same_pane_is_adopted_once(kasmon: Cli, mine: Mine) -> None:
    adopted(kasmon, mine)
    done = kasmon("adopt", "work:0.0", "--name", "again", "--socket", str(mine.socket))

    assert 4 == done.code
    assert "already adopted" in done.err


def test_a_name_that_is_taken_adopts_nothing_and_leaves_nothing(kasmon: Cli, mine: Mine) -> None:
    session = adopted(kasmon, mine)
    done = kasmon("adopt", "other", "--name", "work", "--socket", str(mine.socket))

    assert 4 == done.code
    assert "'work'" in done.err
    assert [session] == [folder.name for folder in kasmon.paths.sessions.iterdir()]


@pytest.mark.parametrize("target", ["wor", "nobody", "%77", "work:9", "work:0.4", "=work", "wor*"])
def test_a_target_matches_whole_names_only(kasmon: Cli, mine: Mine, target: str) -> None:
    done = kasmon("adopt", target, "--socket", str(mine.socket))

    assert 3 == done.code, done.err
    assert [] == kasmon.json("ls")["sessions"]


@pytest.mark.parametrize("target", ["work:0", "work:main", "work:0.0", "%0"])
def test_a_window_may_be_meant_by_number_or_name_and_a_pane_by_its_id(kasmon: Cli, mine: Mine, target: str) -> None:
    assert "work:0.0" == kasmon.json("show", adopted(kasmon, mine, target))["session"]["adopted"]


def test_without_a_tmux_server_adopting_reports_that(kasmon: Cli) -> None:
    done = kasmon("adopt", "work", "--socket", str(kasmon.home / "none.sock"))

    assert 3 == done.code
    assert "no tmux server listens at" in done.err


def test_kasmons_own_tmux_is_not_adopted(kasmon: Cli) -> None:
    done = kasmon("ls", "--tmux", "--socket", str(kasmon.paths.tmux_socket))

    assert 4 == done.code
    assert "kasmon's own tmux" in done.err


def test_when_its_pane_closes_it_has_ended(kasmon: Cli, mine: Mine) -> None:
    session = adopted(kasmon, mine, "other", "--name", "cat")
    keeps = adopted(kasmon, mine)
    mine.run("kill-session", "-t", "other")
    until(lambda: kasmon.json("show", session)["session"]["state"] == "ended", LIMIT_S, "its end")

    assert "ended" != kasmon.json("show", keeps)["session"]["state"]
    assert "lost" != kasmon.json("show", keeps)["session"]["state"]


def test_when_its_server_is_gone_it_is_lost(kasmon: Cli, mine: Mine) -> None:
    session = adopted(kasmon, mine)
    mine.close()

    until(lambda: kasmon.json("show", session)["session"]["state"] in ("lost", "ended"), LIMIT_S, "its loss")
    assert "lost" == kasmon.json("show", session)["session"]["state"]


def test_a_new_host_watches_an_adopted_pane_again(kasmon: Cli, mine: Mine) -> None:
    session, before = adopted(kasmon, mine, "other", "--name", "cat"), mine.state
    pid = kasmon.json("show", session)["session"]["host"]["pid"]
    os.kill(pid, 9)
    until(lambda: kasmon.json("show", session)["session"]["state"] == "unsure", LIMIT_S, "its host's end")
    kasmon.json("send", session, "hello again", "--when", "now")
    until(lambda: "hello again" in mine.screen("other:"), LIMIT_S, "its echo")

    assert before == mine.state
    assert kasmon.json("show", session)["session"]["host"]["pid"] not in (None, pid)


def test_an_agent_is_recognised_by_its_process(kasmon: Cli, mine: Mine) -> None:
    mine.run("new-session", "-d", "-s", "agent", f"{sys.executable} -P -m kasmon.scripted")
    with contextlib.suppress(KeyError):
        until(
            lambda: next(
                pane["agent"]
                for pane in kasmon.json("ls", "--tmux", "--socket", str(mine.socket))["panes"]
                if pane["session"] == "agent"
            ),
            LIMIT_S,
            "the agent",
        )

    assert "scripted" == kasmon.json("show", adopted(kasmon, mine, "agent"))["session"]["agent"]


# -- many sessions by one command: by names, names from stdin, or a filter


def states(kasmon: Cli) -> dict[str, str]:
    return {session["name"]: session["state"] for session in kasmon.json("ls")["sessions"]}


@pytest.fixture
def three(kasmon: Cli) -> Cli:
    """Three structured sessions that run: w-1, w-2, w-3."""
    done = kasmon("new", "w", "--count", "3", "--agent", "scripted", "--mode", "sdk")
    assert (0, 3) == (done.code, len(done.out.split())), done.err
    return kasmon


def test_many_sessions_start_by_one_command_each_with_its_number(kasmon: Cli) -> None:
    results = kasmon.json("new", "fix-{n}b", "--count", "2", "--agent", "scripted", "--mode", "sdk")["results"]

    assert ["fix-1b", "fix-2b"] == [result["session"]["name"] for result in results]
    assert {"fix-1b", "fix-2b"} == states(kasmon).keys()


def test_the_named_sessions_are_stopped_and_each_is_reported(three: Cli) -> None:
    done = three("stop", "w-1", "w-3")

    assert 0 == done.code
    assert ["w-1", "w-3"] == [line.split()[0] for line in done.out.splitlines()]
    assert {"w-1": "ended", "w-2": "idle", "w-3": "ended"} == states(three)


def test_a_name_of_no_session_is_reported_and_the_others_are_stopped(three: Cli) -> None:
    done = three("stop", "w-1", "nix", "w-2", "--json")

    assert 3 == done.code
    assert "'nix'" in done.err
    assert [None, "w-1", "w-2"] == [each["session"] and each["session"]["name"] for each in done.json["results"]]
    assert ["not-found"] == [each["error"]["code"] for each in done.json["results"] if "error" in each]
    assert "idle" == states(three)["w-3"]


def test_a_session_that_is_named_twice_is_stopped_once(three: Cli) -> None:
    assert 1 == len(three("stop", "w-1", "w-1").out.splitlines())


def test_the_exit_code_is_that_of_the_worst_outcome(three: Cli) -> None:
    three("stop", "w-1")

    done = three("stop", "w-1", "w-2")

    assert 4 == done.code
    assert "w-1" in done.err
    assert "ended" == states(three)["w-2"]


def test_names_come_from_stdin(three: Cli) -> None:
    assert 0 == three("stop", "-", given="w-1\n\n w-2 \n").code
    assert {"w-1": "ended", "w-2": "ended", "w-3": "idle"} == states(three)
    assert 2 == three("stop", "-", given="\n").code


def test_sessions_with_names_from_stdin_start_by_one_command(kasmon: Cli) -> None:
    done = kasmon("new", "-", "--agent", "scripted", "--mode", "sdk", given="a\nb\na\n")

    assert (4, 2, True) == (done.code, len(done.out.split()), "'a'" in done.err)
    assert {"a", "b"} == states(kasmon).keys()
    assert 2 == kasmon("new", "-", "--prompt", "-", given="c\n").code


def test_a_prompt_goes_to_each_named_session_and_a_name_of_none_is_reported(three: Cli) -> None:
    done = three("send", "w-1", "nix", "w-2", "say more", "--json")

    assert (3, True, "not-found") == (done.code, "'nix'" in done.err, done.json["errors"][0]["code"])
    assert ["w-1", "w-2"] == [three.json("show", each["session"])["session"]["name"] for each in done.json["receipts"]]
    assert 2 == three("send", "w-1", "w-2", "say more", "--all").code
    assert 4 == three("send", "--plan", "p-none", "say more").code
    three("stop", "w-1")
    assert 2 == len(three("send", "--all", "--yes", "say more").out.splitlines())
    assert 4 == three("send", "w-1", "w-3", "say more").code


def test_a_filter_selects_only_sessions_that_the_command_can_act_on(three: Cli) -> None:
    three("stop", "w-1")

    assert 0 == three("stop", "--all", "--yes").code
    assert {"ended"} == {*states(three).values()}
    assert 0 == three("restart", "--state", "ended", "--yes").code
    assert {"idle"} == {*states(three).values()}
    done = three("rm", "--all", "--yes")
    assert 4 == done.code
    assert "matches the filter" in done.err
    three("stop", "w-2")
    assert "w-2" in three("rm", "--all").out
    assert {"w-1", "w-3"} == states(three).keys()
    assert 4 == three("stop", "--plan", "p-none", "--yes").code


def test_a_session_is_tagged_when_it_starts_and_later(kasmon: Cli) -> None:
    session = kasmon.new("docs", "say hi", "--tag", "Urgent", "--tag", "api")
    other = kasmon.new("web", "say hi")

    assert ["api", "urgent"] == kasmon.json("show", session)["session"]["tags"]
    assert "tags      api, urgent\n" in kasmon("show", session).out
    assert "api,urgent" in kasmon("ls").out
    tagged = kasmon("tag", "docs", "web", "--add", "later", "--remove", "api")
    assert (0, f"docs ({session}): tags: later, urgent\nweb ({other}): tags: later\n") == (tagged.code, tagged.out)
    assert {"docs": ["later", "urgent"], "web": ["later"]} == {
        each["name"]: each["tags"] for each in kasmon.json("ls")["sessions"]
    }
    assert f"web ({other}): no tags\n" == kasmon("tag", "web", "--remove", "later").out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "which tags"),
        (("--add", "two words"), "'two words' is not a tag"),
        (("--add", "a,b"), "'a,b' is not a tag"),
        (("--add", "\x1b[31mred"), "is not a tag"),
        (("--add", "x" * 33), "33 cells wide"),
        (("--add", "x", "--remove", "X"), "both added and removed"),
        (tuple(f"--add={number}" for number in range(17)), "17 tags are too many"),
    ],
)
def test_an_invalid_tag_is_refused(three: Cli, options: tuple[str, ...], said: str) -> None:
    done = three("tag", "w-1", *options)

    assert 2 == done.code
    assert said in done.err
    assert [[], [], []] == [each["tags"] for each in three.json("ls")["sessions"]]
    assert 2 == three("new", "w-4", "--agent", "scripted", "--tag", "two words").code


def test_a_session_has_a_bounded_number_of_tags(three: Cli) -> None:
    assert 0 == three("tag", "w-1", *(f"--add={number}" for number in range(16))).code
    assert 2 == three("tag", "w-1", "--add", "more").code
    assert 0 == three("tag", "w-1", "--add", "more", "--remove", "0").code


def test_a_filter_selects_by_tag(three: Cli) -> None:
    three("tag", "w-1", "--add", "api")
    three("tag", "w-2", "--add", "docs")

    assert ["w-1"] == [each["name"] for each in three.json("ls", "--tag", "API")["sessions"]]
    assert [] == three.json("ls", "--tag", "api", "--state", "ended")["sessions"]
    listed = three.json("send", "--tag", "docs", "--include", "shells", "--dry-run", "say on")["recipients"]
    assert ["w-2"] == [each["name"] for each in listed]
    assert 0 == three("stop", "--tag", "api,docs", "--yes").code
    assert {"w-1": "ended", "w-2": "ended", "w-3": "idle"} == states(three)
    assert 4 == three("stop", "--tag", "none", "--yes").code
    assert 2 == three("stop", "--tag", "api,", "--yes").code


@pytest.mark.parametrize(
    "arguments", [(), ("w-1", "--all"), ("w-1", "--state", "idle"), ("w-1", "--plan", "p"), ("w-1", "--tag", "t")]
)
def test_names_and_a_filter_exclude_each_other_and_one_is_required(three: Cli, arguments: tuple[str, ...]) -> None:
    assert 2 == three("stop", *arguments).code
    assert {"idle"} == {*states(three).values()}


def test_a_filter_stops_several_only_when_that_is_confirmed(three: Cli) -> None:
    done = three("stop", "--all")

    assert 4 == done.code
    assert "3 sessions would be stopped" in done.err
    assert {"idle"} == {*states(three).values()}
    code, _ = three.terminal("stop", "--all", typed=[("Type yes", "no\n")])
    assert (4, {"idle"}) == (code, {*states(three).values()})
    code, _ = three.terminal("stop", "--all", typed=[("Type yes", "yes\n")])
    assert (0, {"ended"}) == (code, {*states(three).values()})


def test_a_single_named_session_has_a_single_result(three: Cli) -> None:
    assert "w-1" == three.json("stop", "w-1")["session"]["name"]
    done = three("stop", "w-1", "--json")
    assert (4, "ended") == (done.code, done.json["error"]["code"])


# Templates: what is omitted comes from one, and its fields from `--field`.

TEMPLATES = """
[accounts.work]
agent = "scripted"

[templates.fix]
agent = "scripted"
mode = "sdk"
tags = ["bug"]
prompt = "say '{issue} is {{{issue}}} for {who}'"

[templates.plain]
agent = "scripted"
mode = "sdk"
prompt = "say '{{x}}'"

[templates.list]
agent = "shell"
prompt = "ls {folder}"

[templates.tree]
agent = "scripted"
worktree = true
base = "v1"

[templates.elsewhere]
machine = "nowhere"
"""


@pytest.fixture
def made(kasmon: Cli) -> Cli:
    kasmon.paths.config.mkdir(parents=True, exist_ok=True)
    kasmon.paths.config_file.write_text(TEMPLATES)
    return kasmon


def prompts(kasmon: Cli, session: str) -> list[str]:
    receipts = until(lambda: kasmon.json("show", session)["session"]["receipts"], LIMIT_S)
    return [receipt["text"] for receipt in receipts]


def test_a_session_starts_by_a_template_with_its_fields_filled_in(made: Cli) -> None:
    made_by = made.json(
        "new", "fix-12", "--template", "fix", "--field", "issue=1={who} $(x)", "--field=who=me", "--tag", "now"
    )["session"]

    assert ("scripted", "sdk", ["bug", "now"]) == (made_by["agent"], made_by["mode"], made_by["tags"])
    assert ["say '1={who} $(x) is {1={who} $(x)} for me'"] == prompts(made, made_by["id"])


def test_an_option_has_priority_over_the_template(made: Cli) -> None:
    made_by = made.json("new", "own", "--template", "fix", "--mode", "tmux", "--prompt", "say '{issue}'")["session"]

    assert ("scripted", "tmux", ["bug"]) == (made_by["agent"], made_by["mode"], made_by["tags"])
    assert ["say '{issue}'"] == prompts(made, made_by["id"])


def test_a_template_without_fields_needs_none(made: Cli) -> None:
    assert ["say '{x}'"] == prompts(made, made.json("new", "plain", "--template", "plain")["session"]["id"])


@pytest.mark.parametrize(
    ("options", "code", "said", "hint"),
    [
        (("--template", "fix"), 2, "'issue' has no value", "--field issue=TEXT"),
        (("--template", "fix", "--field", "issue=1"), 2, "'who' has no value", "--field who=TEXT"),
        (("--template", "fix", "--field", "issue= ", "--field", "who=x"), 2, "'issue' has no value", "--field"),
        (("--template", "fix", "--field", "isue=1"), 2, "no field 'isue'", "issue, who"),
        (("--template", "plain", "--field", "x=1"), 2, "no field 'x'", "none"),
        (("--template", "fix", "--prompt", "hi", "--field", "who=x"), 2, "no field 'who'", "none"),
        (("--template", "fix", "--field", "issue"), 2, "'issue' is no value", "NAME=TEXT"),
        (("--template", "fix", "--field", "who=1", "--field", "who=2"), 2, "given twice", "once"),
        (("--template", "nix"), 3, "no template 'nix'", "elsewhere, fix, list, plain, tree"),
        (("--field", "issue=1"), 2, "--field requires --template", "prompt"),
        (("--template", "fix", "--", "sh"), 2, "a program after --", "one of them"),
        (("--template", "list", "--field", "folder=; reboot"), 4, "'shell' executes its input", "another agent"),
        (
            ("--template", "fix", "--agent", "shell", "--mode=tmux", "--field=issue=1", "--field=who=x"),
            4,
            "executes",
            "",
        ),
        (("--template", "elsewhere"), 3, "nowhere", ""),
    ],
)
def test_a_template_is_refused_where_it_cannot_be_used(
    made: Cli, options: tuple[str, ...], code: int, said: str, hint: str
) -> None:
    done = made("new", "x", *options)

    assert code == done.code, done.err
    assert said in done.err
    assert hint in done.err
    assert [] == made.json("ls")["sessions"]


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x", *words], check=True)


def test_a_template_makes_a_worktree_unless_an_option_disables_it(made: Cli) -> None:
    repository = made.home / "shop"
    git(made.home, "init", "-q", str(repository))
    for name in ("v1", "v2"):
        git(repository, "commit", "-q", "--allow-empty", "-m", name)
        git(repository, "tag", name)

    def tree(name: str, *options: str) -> str | None:
        made_by = made.json("new", name, "--template", "tree", "--dir", str(repository), *options)["session"]
        return None if made_by["worktree"] is None else str(made_by["worktree"]["base_name"])

    assert "v1" == tree("a")
    assert "v2" == tree("b", "--base", "v2")
    assert None is tree("c", "--no-worktree")


def test_a_folders_template_counts_once_it_is_trusted(made: Cli) -> None:
    repository = made.home.resolve() / "repo"
    git(made.home, "init", "-q", str(repository))
    (repository / NAME).write_text(
        '[templates.theirs]\nagent = "scripted"\nmode = "sdk"\ntags = ["t"]\nprompt = "say {x}"\n'
    )
    words = ("new", "far", "--template", "theirs", "--dir", str(repository), "--field", "x='hi'")

    refused = made(*words)
    assert 4 == refused.code
    assert "'theirs' is defined only in a config that is ignored" in refused.err
    assert f"kasmon trust {repository}" in refused.err
    code, said = made.terminal("trust", str(repository), typed=[("Trust it?", "y\n")])
    assert 0 == code, said
    for line in ("A new template 'theirs' starts 'scripted'.", 'prompt = "say {x}"', 'tags = ["t"]'):
        assert line in said
    assert ["say 'hi'"] == prompts(made, made.json(*words)["session"]["id"])
    (repository / NAME).write_text('[templates.theirs]\nagent = "scripted"\nprompt = "say evil"\n')
    assert 4 == made("new", "b", *words[2:]).code
    assert 3 == made("new", "b", "--template", "theirs").code, "it is none of another folder"
