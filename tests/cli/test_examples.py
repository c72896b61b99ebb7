"""Every file in `examples/` works as it is: plans and the program run, the config and the theme are accepted."""

import subprocess
import sys
from pathlib import Path

import pytest

from kasmon.config.parser import parse
from kasmon.config.profile import resolve
from kasmon.model.commands import Mode
from kasmon.tui.keymap import chosen
from kasmon.tui.theme import theme
from tests.support.cli.cli_runner import Cli
from tests.support.git_repo import Repo

FOLDER = Path(__file__).parents[2] / "examples"
TESTED = {"README.md", "plan.toml", "plan.md", "config.toml", "fjord.toml", "review.py"}


def test_every_example_has_a_test_and_a_line_on_its_page() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")

    assert {path.name for path in FOLDER.iterdir()} == TESTED
    assert [] == [name for name in TESTED - {"README.md"} if f"]({name})" not in page]


@pytest.mark.story
@pytest.mark.parametrize("name", ["plan.toml", "plan.md"])
def test_a_plan_is_accepted_and_runs_to_its_end(kasmon: Cli, name: str) -> None:
    """The scripted agent, which needs no account, stands in for claude and codex."""
    text = (FOLDER / name).read_text("utf-8")
    for agent in ("claude", "codex"):
        text = text.replace(f'"{agent}"', '"scripted"').replace(f"**Agent:** {agent}", "**Agent:** scripted")
    repo = Repo(kasmon.home / "repo")
    (repo.folder / name).write_text(text)

    checked = kasmon("plan", "check", f"repo/{name}")
    done = kasmon("plan", "run", f"repo/{name}", "--ci", "--yes", "--json")

    assert (0, "") == (checked.code, checked.err)
    assert 0 == done.code, done.out + done.err


def test_the_config_is_accepted_with_its_keys_and_profiles(tmp_path: Path) -> None:
    for program in ("claude", "goose"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    text = (FOLDER / "config.toml").read_text("utf-8")
    config = parse(text, "config.toml")
    claude, careful, goose = (
        resolve(config, name, environment={"PATH": str(tmp_path)}) for name in ("claude", "careful", "goose")
    )

    assert ("w", "tab") == chosen(config.keys, "config.toml", text).of("next")
    assert ("nord", 4, 1800) == (config.ui.theme, config.plans.limit, config.session.standby_after_seconds)
    assert (Mode.SDK, "acp") == (claude.mode, goose.backend)
    assert ("jail", "pypi") == (config.agents["careful"].sandbox, config.agents["careful"].confined.network[-1])
    assert careful.argv[0].endswith("claude")


def test_the_theme_is_accepted() -> None:
    made = theme.parse((FOLDER / "fjord.toml").read_text("utf-8"), "fjord.toml")

    assert ("Fjord", "#8fd3c1") == (made.title, made.colors.accent)


def test_the_program_allows_harmless_requests_and_denies_the_rest(kasmon: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "-P", FOLDER / "review.py"],
        capture_output=True,
        text=True,
        env=kasmon.environment,
        cwd=kasmon.home,
        timeout=60,
    )

    assert ("", 0) == (done.stderr, done.returncode)
    assert ["allow: ls -l", "deny: rm -rf build"] == done.stdout.splitlines()[:2]
    assert "I look around first." in done.stdout
    assert "Done." in done.stdout
