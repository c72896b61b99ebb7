"""Pages about sessions of this machine, and those that need nothing but a config."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cli.page_run import PageRun, PageStory, type_at
from tests.support.e2b.local_service import served
from tests.support.wait import until

MOVE = "tests/agents/stack/test_move.py: it needs a real agent, whose conversation both modes have"
AGENT = "tests/agents/sandbox: it needs a real agent, or one that a jail's user may read"
INSTALL = "tests/support/install_wheel runs it: `make test-install`"
DEMO = "tests/test_setup.py and tests/demo run it"
ANSWER = "kasmon answer q7f4a2bc-1 allow --digest 680da8ad…"
ALWAYS = "kasmon answer q7f4a2bc-1 always --scope project --digest …"
DETACH = type_at(("\x1b[?1049h", "\x1d"))
"""Ctrl+] once the terminal is shown, which may have ended."""
PLAN = """
name = "refactor"
[[task]]
id = "parser"
run = "true"
"""


def ask(run: PageRun) -> None:
    """A session has a request, which has the id and the digest of the page from now on."""
    known = len(run.kasmon.json("ls")["sessions"])
    run.kasmon.new(f"asking-{known}", "ask git push")
    request = run.kasmon.request()
    run.filled |= {
        "q7f4a2bc-1": request["id"],
        "680da8ad…": request["digest"],
        "--digest …": f"--digest {request['digest']}",
    }


def write_log(run: PageRun) -> None:
    log = run.kasmon.folder / "log" / "test.log"
    log.parent.mkdir()
    log.write_text("one\n")


@contextmanager
def own_tmux(run: PageRun) -> Iterator[None]:
    """A tmux of the person's, whose session `work` has two windows. Of twenty sessions, three are started."""
    run.filled["--count 20"] = "--count 3"
    run.kasmon.environment["TMUX_TMPDIR"] = str(run.kasmon.home)

    def tmux(*words: str) -> None:
        subprocess.run(["tmux", *words], env=run.kasmon.environment, check=True, timeout=60)

    tmux("-f", "/dev/null", "new-session", "-d", "-s", "work", "cat")
    try:
        tmux("new-window", "-d", "-t", "work:1", "cat")
        yield
    finally:
        tmux("kill-server")


def change_plan(run: PageRun) -> None:
    """Make another plan of the example, with the task that the page names."""
    (run.kasmon.folder / "refactor.toml").write_text(PLAN)


def wait_for_claim(run: PageRun) -> None:
    until(lambda: run.kasmon.json("plan", "show", "refactor")["plan"]["asks"], what="the question of the plan")


@contextmanager
def service_without_machines(run: PageRun) -> Iterator[None]:
    """The stand-in for E2B; and a jail in place of the virtual machine, which needs an image."""
    run.filled["--tier microvm"] = "--tier jail"
    with served() as service:
        run.kasmon.environment |= {
            "E2B_API_KEY": service.access.key,
            "E2B_API_URL": service.url,
            "E2B_SANDBOX_URL": service.url,
        }
        yield
        assert 0 == run.kasmon("sandbox", "rm", "cloud").code


def measure_little(run: PageRun, line: str) -> None:
    """One small measurement instead of all, which take an hour."""
    run.kasmon.environment["PATH"] = str(run.kasmon.home)  # no other dashboard is there
    words = run.words(line)
    done = run.kasmon(*words[1:], "plan-file", "--rounds", "1")
    assert (0, True) == (done.code, "a plan of 10,000 tasks" in done.out), (line, done.out, done.err)
    if "--json" in words:
        (run.kasmon.folder / "before.json").write_text(done.out)


BENCH = ("kasmon bench", "kasmon bench --json", "kasmon bench --compare before.json", "kasmon bench --peers")
STORIES = {
    "README.md": PageStory(
        left_out={
            "make run": DEMO,
            "uv tool install .": INSTALL,
            "pipx install '.[claude,acp]'": INSTALL,
        },
        acts={"kasmon attach fix-auth": DETACH},
    ),
    "docs/configuration.md": PageStory(),
    "docs/plans.md": PageStory(
        before={
            "kasmon plan run refactor.toml": change_plan,
            "kasmon plan retry refactor parser": wait_for_claim,
        },
        acts={"kasmon plan run refactor.toml": type_at(("[y/N]", "y\r"))},
    ),
    "docs/cli.md": PageStory(
        left_out={"kasmon move fix-auth --to sdk": MOVE},
        fixture=own_tmux,
        before={
            "kasmon new logs --in fix-auth -- tail -f log/test.log": write_log,
            ANSWER: ask,
            'kasmon grep -i "token expired"': lambda run: run.kasmon.new("tokens", "say The token expired."),
        },
        acts={"kasmon attach fix-auth": DETACH},
    ),
    "docs/getting-started.md": PageStory(
        left_out={"make run": DEMO, "kasmon demo": DEMO, "kasmon move parser --to tmux": MOVE},
        before={
            ANSWER: ask,
            ALWAYS: ask,
            "kasmon restart fix-auth": lambda run: run.kasmon("stop", "fix-auth"),
        },
        acts={"kasmon attach fix-auth": DETACH},
    ),
    "docs/trust.md": PageStory(acts={"kasmon trust ~/src/shop": type_at(("[y/N]", "y\r"))}),
    "docs/mcp.md": PageStory(
        left_out={"claude mcp add kasmon -- kasmon mcp": "it changes the config of a real claude"}
    ),
    "docs/performance.md": PageStory(acts=dict.fromkeys(BENCH, measure_little)),
    "docs/sandboxes.md": PageStory(
        left_out={
            "kasmon new fix-auth --agent claude --sandbox jail --dir ~/shop": AGENT,
            "kasmon sandbox run lab --lang bash 'pip download six'": "it needs a network",
            "kasmon sandbox image build": "it needs a network: `make machine` runs it",
            "kasmon new fix-auth --agent claude --sandbox microvm --dir ~/shop": AGENT,
            "kasmon sandbox pause fix-auth --disk": AGENT,
        },
        fixture=service_without_machines,
        acts={"kasmon sandbox forward lab 8000": lambda run, line: run.serve(line, "is port 8000 of lab")},
    ),
}
