"""Keys that an agent inherits are as secret as those it is given; in a terminal it inherits the same as by protocol."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kasmon.backends.base import Chunk
from kasmon.backends.common.environment import decoded, encoded, inherited, own_prefixes, search_path
from kasmon.errors import KasmonError, RefusedError, UsageError
from kasmon.host.journal.secrets import secrets_in
from kasmon.host.rpc.frames import FromHost, StartSession, TextDelta, Watch
from kasmon.host.rpc.secret_stdin import handed
from kasmon.model.commands import AgentCommand, Answer, Interrupt, Prompt
from kasmon.model.events import MessageWritten, ToolFinished
from kasmon.model.permission import Decision, RequestId
from kasmon.paths import write_private
from tests.support.agents.fake_agent import FakeAgent, asked
from tests.support.claude_screen import message
from tests.support.host.env import ME, Env, do
from tests.support.host.tmux_env import TmuxEnv
from tests.support.wait import auntil, until

KEY, OTHER = "key-that-claude-has", "key-that-codex-has"
MARK = f"⟨hidden: {len(KEY)} characters⟩"
CALLER = {
    "PATH": os.environ["PATH"],
    "ANTHROPIC_API_KEY": KEY,
    "ANTHROPIC_MODEL": "a-model",
    "OPENAI_API_KEY": OTHER,
    "CLAUDECODE": "1",
    "EDITOR": "its-editor",
}


def program(root: Path, name: str, script: str) -> str:
    """A program called *name* that runs *script*."""
    path = root / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


# A structured session


async def test_an_inherited_key_is_hidden_from_the_log_and_makes_no_rule(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CALLER.items():
        monkeypatch.setenv(name, value)
    async with env.hosting(fake, env.wants(backend="fake", argv=("claude",))):
        fake.say(MessageWritten(at=1.0, text=f"{KEY}, a-model"), ToolFinished(at=1.0, call="1", output=OTHER))
        fake.say(asked(f"echo {KEY}"))
        await auntil(lambda: env.session().requests)

    assert [f"{MARK}, a-model"] == [said.text for said in env.only(MessageWritten)]
    assert [OTHER] == [done.output for done in env.only(ToolFinished)]
    [closed] = env.session().closed
    assert RequestId(f"{ME}-1") == closed.id
    assert KEY.encode() not in env.paths.log(ME).read_bytes()
    assert b'"always"' not in env.paths.log(ME).read_bytes()


async def test_no_part_of_it_is_shown_in_streamed_text(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    shown: list[FromHost] = []
    async with env.hosting(fake, env.wants(backend="fake", argv=("claude",))):
        link = await env.linked()
        link.on_push = shown.append
        link.send(Watch(session=ME, rate_hz=0.0))
        texts = [f"it is {KEY[:5]}", KEY[5:9], f"{KEY[9:]}. So", " be it"]
        for number, text in enumerate(texts):
            fake.say(Chunk(text=text), Chunk(text=text, thinking=True))
            whole = "".join(texts[: number + 1]).replace(KEY, MARK)
            held = "it is " if number < 2 else whole
            for thinking in (True, False):
                expected = TextDelta(session=ME, text=held, thinking=thinking)
                await auntil(lambda expected=expected: expected in shown)  # type: ignore[misc]

    assert not [push for push in shown if isinstance(push, TextDelta) and KEY[:3] in push.text]


async def test_an_edited_request_is_sent_to_the_agent_with_its_secret_restored(env: Env, fake: FakeAgent) -> None:
    env.wants(backend="fake")
    write_private(env.paths.environment(ME), encoded({"PLANTED": KEY}))
    async with env.hosting(fake, env.wanted()):
        fake.say(asked(f"echo {KEY}"))
        await auntil(lambda: env.session().requests)
        [request] = env.session().requests
        assert (f"echo {MARK}", True) == (request.input["command"], Decision.EDIT in request.choices)
        edit = Answer(request=request.id, digest=request.digest, decision=Decision.EDIT)
        link = await env.linked()
        with pytest.raises(UsageError, match="a redacted part is broken"):
            await do(link, msgspec.structs.replace(edit, input={"command": f"echo {MARK[:-1]}"}))
        await do(link, msgspec.structs.replace(edit, input={"command": f"printf {MARK}"}))

    assert [{"command": f"printf {KEY}"}] == [wish.input for wish in fake.told if isinstance(wish, Answer)]


async def test_an_error_to_a_client_does_not_contain_it(env: Env, fake: FakeAgent) -> None:
    async def fails(wish: AgentCommand) -> None:
        raise ValueError(f"cannot say {KEY}") if isinstance(wish, Prompt) else RefusedError(f"no {KEY}.", hint=KEY)

    env.wants(backend="fake")
    write_private(env.paths.environment(ME), encoded({"PLANTED": KEY}))
    fake.on_wish = fails
    async with env.hosting(fake, env.wanted()):
        link = await env.linked()
        await auntil(lambda: env.session().exists)
        for wish in (Prompt(text="go"), Interrupt()):
            with pytest.raises(KasmonError, match=MARK) as told:
                await do(link, wish)
            assert KEY not in f"{told.value} {told.value.hint} {vars(told.value)}"
        fake.on_wish = None

    assert KEY.encode() not in env.paths.log(ME).read_bytes()


# An agent in a terminal


async def test_an_agent_in_a_terminal_inherits_what_a_structured_one_does_from_whoever_starts_it(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "that of the host")
    its_version = 'case "$1" in --version) exit ;; esac'  # its host asks for it, with variables of its own
    claude = program(tmux.root, "claude", f'{its_version}; cd "{tmux.root}"; env -0 > new; mv new got; exec cat')
    launch = tmux.wants(ME, claude)
    write_private(tmux.paths.environment(ME), encoded({"PLANTED": "its own"}))
    passed = inherited(own_prefixes(launch.argv), CALLER)
    async with tmux.serving() as link:
        await link.ask(StartSession(n=0, session=launch.session, variables=encoded(passed)), limit_s=40)
        await auntil((tmux.root / "got").exists)
        await auntil(lambda: not list(tmux.paths.folder(ME).glob("pane.*")), what="its start's files gone")

    variables = decoded((tmux.root / "got").read_bytes())
    path = search_path(tmux.paths, passed)  # `kasmon` is found inside
    assert path.removeprefix(passed["PATH"]) in ("", f"{os.pathsep}{tmux.paths.commands}")
    assert (passed | {"PATH": path}).items() <= variables.items()
    assert shutil.which("kasmon", path=variables["PATH"])
    assert ("its own", "tmux") == (variables["PLANTED"], variables["TERM_PROGRAM"])
    assert not {"OPENAI_API_KEY", "CLAUDECODE", "TMUX"} & variables.keys()


async def test_its_keys_are_hidden_from_its_log_also_by_the_next_host(tmux: TmuxEnv) -> None:
    says = message("it failed with $ANTHROPIC_API_KEY")
    claude = program(tmux.root, "claude", f"read -r now; {says}; read -r now; exit 3")
    launch = tmux.wants(ME, claude)
    host = tmux.open()
    async with tmux.client() as link:
        passed = encoded(inherited(own_prefixes(launch.argv), CALLER))
        await link.ask(StartSession(n=0, session=launch.session, variables=passed), limit_s=40)
        await tmux.ready(ME)
    host.send_signal(signal.SIGKILL)
    host.wait()
    tmux.open()
    tmux.server.run("send-keys", "-t", f"={ME}:", "Enter")
    await auntil(lambda: b"it failed with" in tmux.paths.log(ME).read_bytes())
    tmux.server.run("send-keys", "-t", f"={ME}:", "Enter")
    await tmux.ended(ME)

    log = tmux.paths.log(ME).read_bytes()
    assert KEY.encode() not in log
    assert f"it failed with {MARK}".encode() in log


# What a process of ours says of itself


def test_the_secrets_of_a_running_process_are_found_by_its_id() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env=CALLER) as process:
        assert {KEY, OTHER} == set(until(lambda: secrets_in(process.pid)))

    assert () == secrets_in(process.pid)


DYING = """
import asyncio, logging, sys, threading, warnings
from kasmon.host.journal import known_secrets, process_log as own_log
secret = sys.stdin.read()
known_secrets.add_secrets([secret])
own_log.configure()
def fail(*_):
    raise ValueError(f"bad {secret!r}")
class Dropped:
    def __del__(self):
        fail()
async def forgotten():
    asyncio.ensure_future(asyncio.to_thread(fail))
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(0)
logging.error("said %s", secret)
warnings.warn(secret)
thread = threading.Thread(target=fail, name="worker")
thread.start()
thread.join()
Dropped()
asyncio.run(forgotten())
fail()
"""


def test_no_uncaught_traceback_contains_it() -> None:
    """In a thread, a dropped object, a forgotten task, a callback of the loop, a warning, and at the very end."""
    secret = 'planted "5ecr3t" of\\a test'
    done = subprocess.run(
        [sys.executable, "-P", "-c", DYING], input=secret, capture_output=True, text=True, check=False
    )

    assert (1, "") == (done.returncode, done.stdout)
    assert "5ecr3t" not in done.stderr
    assert 8 == done.stderr.count(f"⟨hidden: {len(secret)} characters⟩"), done.stderr
    assert "ValueError: bad " in done.stderr.splitlines()[-1]


def test_secrets_passed_to_a_host_have_no_file_name_and_are_read_once(env: Env) -> None:
    taking = (
        "import os, sys; from kasmon.host.rpc.secret_stdin import load_environment; load_environment(); "
        "print(os.environ['K'], sys.stdin.read() == '')"
    )
    with handed(env.paths, {"K": "a\nb" * 100_000}) as given:
        assert [] == list(env.paths.runtime.iterdir())
        done = subprocess.run(
            [sys.executable, "-P", "-c", taking], stdin=given, capture_output=True, text=True, check=True
        )

    assert "a\nb" * 100_000 + " True\n" == done.stdout
