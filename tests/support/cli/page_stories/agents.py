"""Pages about agents: a new one, conversations of others, an editor, idle ones, and what is told about them."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from tests.support.acp.editor import editor_process
from tests.support.acp.odd_session import ODD
from tests.support.claude.background_list import CLAUDE
from tests.support.cli.page_run import PageRun, PageStory, succeed
from tests.support.supervisor.push_server import PushServer
from tests.support.wait import until

PARROT = """\
#!/bin/sh
show() { printf '\\033[2J\\033[H'; printf 'Parrot 1.0\\n\\n%s\\n\\n%s\\n' "$1" "$2"; }
show 'What shall I say?' 'enter sends'
while read -r said; do
    case $said in
    ask) show 'May I speak? (y or n)' '' ;;
    y) show 'Speaking (3 words)' '' ;;
    *) show 'What shall I say?' 'enter sends' ;;
    esac
done
"""
FOLDER = "~/.config/kasmon/agents/parrot"


@contextmanager
def parrot(run: PageRun) -> Iterator[None]:
    """The made-up agent, a Claude Code with one background session, and an OpenCode with one conversation.

    At the end a screen of a report is recorded too, and the session has the state of its rule.
    """
    kasmon = run.kasmon
    run.put_program("parrot", PARROT)
    run.put_program("claude", CLAUDE.format(python=sys.executable))
    listed = {"id": "86f99758", "kind": "background", "name": "fix the build", "state": "working", "status": "busy"}
    (kasmon.home / "bin" / "list.json").write_text(json.dumps([{**listed, "cwd": str(kasmon.home)}]))
    run.configure(
        f"[agents.opencode]\nprogram = {json.dumps(sys.executable)}\nacp = {json.dumps(['-P', str(ODD), 'lists'])}\n"
    )
    run.filled["ses_4f1c"] = "talk-1"
    yield
    report = kasmon.home / "report"
    assert 0 == kasmon("explain", "bird", "--report", str(report)).code
    again = kasmon("agents", "record", "parrot", str(report), "second", "--state", "working")
    assert "The rules read it as expected." in again.out, again.err
    explained = kasmon.json("explain", "bird")["explanation"]
    assert ("working", "parrot/screen.toml") == (explained["screen"]["state"], explained["screen"]["file"])
    assert "parrot" in {each["name"] for each in kasmon.json("agents", "ls")["agents"]}
    assert "talk-1" == kasmon.json("show", "parser")["session"]["resume_id"]


def write(run: PageRun, file: str) -> None:
    """Write *file* of the made-up agent as the page has it."""
    folder = run.kasmon.paths.agents / "parrot"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(run.file(f"{FOLDER}/{file}"))


def wait_for_screen(shown: str, run: PageRun) -> None:
    until(lambda: shown in run.kasmon("read", "bird").out, what=f"{shown!r} on its screen")


def check_rules(run: PageRun, line: str) -> None:
    """The first time, a rule is proposed for each screen, and the page has them then; the second time all are right."""
    if (run.kasmon.paths.agents / "parrot" / "screen.toml").exists():
        succeed(run, line)
        return
    done = run.kasmon(*run.words(line)[1:])
    assert (1, 3) == (done.code, done.out.count("[[rule]]")), done.out
    assert "0 of 3 recorded screens read as expected" in done.out
    write(run, "screen.toml")


@contextmanager
def docs_session(run: PageRun) -> Iterator[None]:
    run.filled["SESSION"] = run.kasmon.new("docs", "say hello")
    run.until_idle("docs")
    yield


def edit(run: PageRun, line: str) -> None:
    """An editor starts *line*, and prompts a session; one that is named shows what it said before."""
    words = run.words(line)[2:]

    async def prompt() -> None:
        async with editor_process(*words, variables=run.kasmon.environment) as editor:
            await editor.initialize()
            session = await editor.new(str(run.kasmon.home))
            if words == [run.filled["SESSION"]]:
                await editor.until_text("hello")
            assert "end_turn" == await editor.prompt(session, "say done")
            await editor.until_text("done")

    asyncio.run(prompt())


@contextmanager
def two_idle(run: PageRun) -> Iterator[None]:
    """Two idle sessions, of which the page resumes one."""
    for name in ("docs", "parser"):
        run.kasmon.new(name, "say one")
        run.until_idle(name)
    yield
    until(lambda: "continue" in run.kasmon("read", "docs").out, what="the prompt in its transcript")
    assert "hibernated" == run.kasmon.json("show", "parser")["session"]["state"]


@contextmanager
def targets(run: PageRun) -> Iterator[None]:
    """The page's targets, at a server on loopback; the first command sends to both, the second to one."""
    with closing(PushServer()) as server:
        file = run.kasmon.home / ".config" / "kasmon" / "phone"
        file.parent.mkdir(parents=True)
        file.write_text(server.ntfy)
        file.chmod(0o600)
        run.kasmon.environment["PAGER_URL"] = server.pager
        run.configure(run.text.split("```toml\n")[1].split("```")[0])
        yield
        assert ["/", "/", "/pager/verysecret"] == sorted(message.path for message in server.messages)


RECORD = "kasmon agents record parrot bird"
STORIES = {
    "docs/agents.md": PageStory(
        fixture=parrot,
        before={
            "kasmon agents show parrot": lambda run: write(run, "profile.toml"),
            f"{RECORD} idle --state idle": partial(wait_for_screen, "enter sends"),
            f"{RECORD} question --state asking --asking question": partial(wait_for_screen, "May I speak"),
            f"{RECORD} working --state working": partial(wait_for_screen, "Speaking"),
        },
        acts={"kasmon agents test parrot": check_rules},
    ),
    "docs/acp.md": PageStory(
        fixture=docs_session,
        acts=dict.fromkeys(("kasmon acp", "kasmon acp --agent claude", "kasmon acp SESSION"), edit),
    ),
    "docs/idle.md": PageStory(fixture=two_idle),
    "docs/notifications.md": PageStory(fixture=targets),
}
