"""Pages about sessions of this machine, and those that need nothing but a config."""

from tests.support.cli.page_run import PageRun, PageStory, type_at

AGENT = "its agent shows it: the scripted agent has no such request, terminal or conversation"
DIGEST = "its digest is an example"
LIVE = "it needs a person at a terminal"
NEEDS = "it needs a network, an account or an image"
INSTALL = "tests/support/install_wheel runs it: `make test-install`"
DEMO = "tests/test_setup.py and tests/demo run it"


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
            "kasmon attach fix-auth": LIVE,
        }
    ),
    "docs/configuration.md": PageStory(),
    "docs/plans.md": PageStory(
        left_out={
            "kasmon plan run refactor.toml": LIVE,
            "kasmon plan retry refactor parser": "no task has failed",
        }
    ),
    "docs/cli.md": PageStory(
        left_out={
            "kasmon new logs --in fix-auth -- tail -f log/test.log": AGENT,
            "kasmon answer q7f4a2bc-1 allow --digest 680da8ad…": DIGEST,
            "kasmon attach fix-auth": LIVE,
            "kasmon move fix-auth --to tmux": AGENT,
            "kasmon adopt work:1.0": "it needs a tmux of the user's",
            'kasmon grep -i "token expired"': "exit code 1: no match",
        }
    ),
    "docs/getting-started.md": PageStory(
        left_out={
            "make run": DEMO,
            "kasmon demo": DEMO,
            "kasmon attach fix-auth": LIVE,
            "kasmon answer q7f4a2bc-1 allow --digest 680da8ad…": DIGEST,
            'kasmon new fix-auth --agent claude --mode sdk --prompt "The login test fails since Tuesday."': (
                "a session of an earlier section has the name"
            ),
            "kasmon answer q7f4a2bc-1 always --scope project --digest …": DIGEST,
            "kasmon move fix-auth --to tmux": AGENT,
            "kasmon restart fix-auth": "it is already running",
        }
    ),
    "docs/trust.md": PageStory(acts={"kasmon trust ~/src/shop": type_at(("[y/N]", "y\r"))}),
    "docs/mcp.md": PageStory(
        left_out={"claude mcp add kasmon -- kasmon mcp": "it needs the real claude; tests/agents/stack/test_mcp.py"}
    ),
    "docs/performance.md": PageStory(acts=dict.fromkeys(BENCH, measure_little)),
    "docs/sandboxes.md": PageStory(
        left_out={
            "kasmon new fix-auth --agent claude --sandbox jail --dir ~/shop": LIVE,
            "kasmon sandbox run lab --lang bash 'pip download six'": NEEDS,
            "kasmon sandbox forward lab 8000": "it runs until Ctrl+C",
            "kasmon sandbox image build": NEEDS,
            "kasmon sandbox create lab --tier microvm": NEEDS,
            "kasmon sandbox create lab --tier e2b": NEEDS,
            "kasmon new fix-auth --agent claude --sandbox microvm --dir ~/shop": NEEDS,
            "kasmon sandbox pause fix-auth --disk": NEEDS,
        }
    ),
}
