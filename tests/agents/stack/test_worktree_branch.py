"""One branch from its worktree to its removal: a real agent, real git, a bare remote, a scripted `gh` or `glab`.

A person has work of their own in the checkout, and types kasmon's commands.
"""

import json
from typing import Any, cast

import pytest

from kasmon.model.commands import ReceiptState
from kasmon.model.events import ReceiptChanged
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from tests.support.agents.full_stack import LIMIT_S, Stack, beside, stacked
from tests.support.forge_client import ADDRESSES, GITHUB, GITLAB, MERGE_REQUEST, ForgeClient, review_threads
from tests.support.git_repo import Repo
from tests.support.tui.dashboard import Dashboard, Home
from tests.support.wait import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(170)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)

BRANCH = "kasmon/fix"
EDITS = {"claude": ("--permission-mode", "acceptEdits"), "codex": ("-a never", "--sandbox workspace-write")}
"""Flags with which the agent edits files without asking."""
FORGES = {"claude": "gh", "codex": "glab"}
CHECKED_OUT = {"claude": "main", "codex": "own"}
"""The branch in the person's checkout: the base, or another one."""
NUMBERS = {"gh": 7, "glab": 3}


class Story:
    """The repository of a person, its remote, and the worktree of the session `fix`."""

    def __init__(self, stack: Stack) -> None:
        self.stack, agent = stack, stack.agent
        (agent.home / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
        self.repo = Repo(agent.workdir)
        self.repo.commit("src/login.py", "def login(name):\n    return True\n\n\nlogin(1)\n")
        self.remote = agent.workdir.parent / "remote.git"
        self.tree = agent.workdir.parent / "work-worktrees" / "fix"
        name = FORGES[agent.name]
        self.repo.git("clone", "--quiet", "--bare", str(agent.workdir), str(self.remote))
        self.repo.git("remote", "add", "origin", ADDRESSES[name])
        self.repo.git("config", f"url.{self.remote}.insteadOf", ADDRESSES[name])
        self.repo.git("fetch", "--quiet", "origin")
        self._make_own_work(CHECKED_OUT[agent.name])
        url = {"gh": "https://github.com/Me/shop/pull/7", "glab": "https://g.example.org/shop/-/merge_requests/3"}
        words = {"gh": "pr", "glab": "mr"}[name]
        self.client = ForgeClient(agent.workdir.parent / "bin", name, {f"{words} create": url[name]})
        self.client.says(f"{words} list", [])
        stack.variables["PATH"] = f"{self.client.folder}:{stack.variables['PATH']}"
        stack.configure(*EDITS[agent.name])

    def _make_own_work(self, branch: str) -> None:
        """Give the person a stash, an untracked file and changes; staged ones only where the base is not checked out,
        as a merge into a checkout with staged changes is refused."""
        folder = self.repo.folder
        (folder / "file0.txt").write_text("stashed\n")
        self.repo.git("stash")
        if branch != "main":
            self.repo.git("switch", "--quiet", "-c", branch)
            self.repo.commit("own.txt")
            (folder / "staged.txt").write_text("staged\n")
            self.repo.git("add", "staged.txt")
            (folder / "staged.txt").write_text("then changed\n")
        (folder / "file0.txt").write_bytes(b"changed\r\n")
        (folder / "notes.txt").write_text("untracked\n")

    def of_person(self) -> dict[str, object]:
        """All that is the person's: files, index, HEAD, config, stash, and refs but those of the session's branch."""
        folder = self.repo.folder
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(folder / ".git")]
        files += [folder / ".git" / name for name in ("index", "HEAD", "config", "logs/refs/stash")]
        own = {str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes()) for path in files}
        refs = (line.split() for line in self.repo.git("for-each-ref").splitlines() if BRANCH not in line)
        return {**own, **{name: commit for commit, _, name in refs}}

    def changed_since(self, before: dict[str, object]) -> set[str]:
        now = self.of_person()
        return {name for name in {*before, *now} if before.get(name) != now.get(name)}

    def edit(self, old: str, new: str) -> str:
        """The steps of a script that replace a line of the login."""
        path = self.tree / "src" / "login.py"
        read = f"%% read {path} " if self.stack.agent.name == "claude" else ""
        return f"{read}%% edit {path}|{old}|{new}"

    @property
    def login(self) -> str:
        return (self.tree / "src" / "login.py").read_text()

    @property
    def head(self) -> str:
        return self.repo.git("rev-parse", "HEAD", at=self.tree)

    def log(self, commits: str) -> list[str]:
        return self.repo.git("log", "--reverse", "--format=%an: %s", commits).splitlines()

    def pushed(self) -> str:
        return self.repo.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", at=self.remote)

    def branch(self) -> dict[str, Any]:
        """The branch in `kasmon ls --json`."""
        [listed] = self.stack.json("ls")["sessions"]
        branch = listed["branch"]
        assert isinstance(branch, dict)
        return branch

    def finish(self, *options: str) -> Any:
        """`kasmon finish`, as its `--dry-run` has shown it."""
        planned = self.stack.json("finish", "fix", *options, "--dry-run")
        return self.stack.json("finish", "fix", *options, "--digest", planned["digest"])

    def left(self) -> dict[str, str]:
        return {step["action"]: step["text"] for step in self.stack.json("finish", "fix")["steps"]}

    def ci_says(self, result: str, comment: str) -> None:
        """Have the pull request's checks end with *result*, a reviewer write *comment*, and a minute pass."""
        if self.client.name == "gh":
            check = {"__typename": "CheckRun", "name": "test", "status": "COMPLETED", "conclusion": result.upper()}
            check["detailsUrl"] = "https://github.com/Me/shop/actions/runs/42/job/7"
            row = {**GITHUB[0], "headRefOid": self.head, "reviewDecision": "", "statusCheckRollup": [check]}
            self.client.says("pr list", [row])
            reviews = [{"author": {"login": "ann"}, "body": comment, "state": "COMMENTED"}]
            self.client.says("pr view", {"statusCheckRollup": [check], "reviews": reviews, "comments": []})
            self.client.says("api graphql", review_threads())
        else:
            pipeline = {"id": 9, "status": {"failure": "failed"}.get(result, result)}
            row = {**GITLAB[0], "draft": False, "sha": self.head, "head_pipeline": pipeline}
            self.client.says("mr list", [row])
            notes = [{"author": {"username": "ann"}, "body": comment, "position": None}]
            self.client.says(f"{MERGE_REQUEST}/discussions", [{"notes": notes}])
        for file in self.stack.paths.pull_requests.glob("*.json"):
            stored = json.loads(file.read_bytes())
            file.write_text(json.dumps({**stored, "asked_at": stored["asked_at"] - 60}))

    def finishes(self, session: SessionId, prompts: int) -> None:
        """Wait until the agent has finished so many prompts, and rests."""

        def is_over() -> bool:
            states = [event.receipt.state for event in self.stack.facts(session, ReceiptChanged)]
            return states.count(ReceiptState.FINISHED) == prompts

        until(is_over, LIMIT_S, f"the end of prompt {prompts}")
        self.stack.until_state(session, SessionState.IDLE)


@pytest.fixture
def story(stack: Stack) -> Story:
    return Story(stack)


@pytest.mark.parametrize(("name", "mode"), [("claude", "tmux"), ("codex", "sdk")])
def test_a_branch_is_worked_on_reviewed_proposed_fixed_merged_and_removed(
    name: str, mode: str, stack: Stack, story: Story
) -> None:
    repo, number, mine, remotes = story.repo, NUMBERS[story.client.name], story.of_person(), story.pushed()
    base = repo.git("rev-parse", "main")

    prompt = f"fix the login {story.edit('    return True', '    return name')} %% say edited"
    session = stack.new("fix", prompt, "--base", "main", mode=mode)
    story.finishes(session, prompts=1)
    assert "def login(name):\n    return name\n\n\nlogin(1)\n" == story.login
    branch = story.branch()
    assert (BRANCH, base, "main", 0, 1) == tuple(
        branch[field] for field in ("name", "head", "base_name", "ahead", "unstaged")
    )
    assert "+    return name" in stack("diff", "fix", "--last").out

    assert 0 == stack("comment", "fix", "src/login.py:2", "Why not None?").code
    script = f"{story.edit('    return name', '    return None')} %% say both %% end"
    assert 0 == stack("comment", "fix", "src/login.py:5", f"Say who. {script}").code
    assert 0 == stack("comments", "fix", "--send").code
    story.finishes(session, prompts=2)
    assert "def login(name):\n    return None\n\n\nlogin(1)\n" == story.login
    assert ["resolved", "sent"] == [comment["state"] for comment in stack.json("comments", "fix")["comments"]]
    assert set() == story.changed_since(mine)

    story.finish("--commit", "-m", "Fix the login")
    assert ["Ann: Fix the login"] == story.log(f"{base}..{BRANCH}")
    branch = story.branch()
    assert (story.head, 1, 0, "") == tuple(branch[field] for field in ("head", "ahead", "unstaged", "remote"))

    story.finish("--push")
    assert f"refs/heads/{BRANCH} {story.head}\n{remotes}" == story.pushed()
    assert (f"origin/{BRANCH}", 0) == tuple(story.branch()[field] for field in ("remote", "unpushed"))

    story.finish("--pr", "-m", "Fix the login")
    assert any(BRANCH in call and "main" in call for call in story.client.calls if " create " in call)
    assert number == story.branch()["pull_request"]

    story.ci_says("failure", f"Say who. {story.edit('login(1)', 'login(2)')} %% say fixed %% end")
    assert f"#{number} checks failed" in story.left()["fix"]
    assert 0 == stack("finish", "fix", "--fix").code
    story.finishes(session, prompts=3)
    assert "def login(name):\n    return None\n\n\nlogin(2)\n" == story.login
    assert any("> E  assert 1 == 2" in turn["user"] for turn in stack.stub.turns)

    story.finish("--commit", "--push", "-m", "Fix the checks")
    assert f"refs/heads/{BRANCH} {story.head}\n{remotes}" == story.pushed()
    story.ci_says("success", "")
    assert f"#{number} open, checks passed" in story.left()["propose"]
    assert "fix" not in story.left()
    assert {".git/config"} == story.changed_since(mine), "the upstream of the branch that was pushed"

    story.finish("--merge")
    assert ["Ann: Fix the login", "Ann: Fix the checks", f"Ann: Merge branch '{BRANCH}'"] == story.log(f"{base}..main")
    assert story.login.strip() == repo.git("show", "main:src/login.py")

    assert 4 == stack("worktrees", "gc", "fix", "--yes").code, "the agent still runs there"
    assert 0 == stack("stop", "fix").code
    assert [str(story.tree)] == stack.json("worktrees", "gc", "--yes")["removed"]
    assert ("", 1) == (repo.git("branch", "--list", BRANCH), len(repo.git("worktree", "list").splitlines()))
    merged = {"src/login.py", ".git/index"} if "main" == CHECKED_OUT[name] else set()
    assert {"refs/heads/main", *merged} == story.changed_since(mine)
    assert not story.tree.exists()
    assert f"refs/heads/{BRANCH}" in story.pushed()


@pytest.mark.parametrize("name", ["claude"])
def test_an_open_dashboard_has_the_agent_fix_its_pull_request_and_only_the_agent_pushes(
    stack: Stack, story: Story
) -> None:
    """The prompt asks it to push, which it may do once a person allows that."""
    session = stack.new("fix", f"fix {story.edit('    return True', '    return name')} %% say edited", "--worktree")
    story.finishes(session, prompts=1)
    story.finish("--commit", "--pr", "-m", "Fix the login")
    proposed, mine = story.pushed(), story.of_person()
    push = "%% bash git commit --quiet --all --message Again && git push --quiet"
    story.ci_says("failure", f"Say who. {story.edit('    return name', '    return None')} {push} %% say fixed %% end")
    config = stack.paths.config_file
    config.write_text(f"{config.read_text()}\n[finish]\nauto_fix = true\nwatch = true\nrounds = 2\n")

    with Dashboard(cast(Home, stack)):
        request = stack.asked(session)
        before = story.pushed()
        assert 0 == stack.answer(request, "allow").code
        story.finishes(session, prompts=2)

    [prompt] = {turn["user"] for turn in stack.stub.turns if turn["user"].startswith("Round 1 of 2. Of your pull")}
    assert "commit the result and push it." in prompt.splitlines()[0]
    assert "git push" in request["shown"]
    assert proposed == before
    assert proposed != story.pushed()
    assert story.head in story.pushed()
    assert "    return None\n" in story.login
    assert set() == story.changed_since(mine)


PLAN = """
name = "two"
agent = "{agent}"
mode = "sdk"
worktree = "own"
env = {env}

[[task]]
id = "first"
prompt = "go %% bash echo first >first.txt %% bash git add --all && git commit --quiet --message First %% say made"
check = "test -f first.txt"

[[task]]
id = "second"
prompt = "go %% bash echo second >second.txt && git add --all && git commit --quiet --message Second %% say made"
check = "test -f second.txt"
"""


@pytest.mark.parametrize("name", ["codex"])
def test_the_branches_of_a_plan_are_merged_one_by_one_with_the_checks_of_its_tasks(stack: Stack, story: Story) -> None:
    repo = story.repo
    repo.git("stash", "--include-untracked")
    repo.git("switch", "--quiet", "main")
    stack.configure("-a never", "--sandbox danger-full-access")
    file = repo.folder / "plan.toml"
    file.write_text(PLAN.format(agent=stack.agent.name, env=json.dumps(sorted(stack.agent.own))))
    assert 0 == stack("plan", "run", str(file), "--yes").code
    until(lambda: stack.json("plan", "show", "two")["plan"]["state"] == "ended", LIMIT_S, "the plan's end")
    mine = story.of_person()

    planned = stack.json("merge-plan", "--plan", "two", "--dry-run")["plan"]
    assert set() == story.changed_since(mine)
    merged = stack.json("merge-plan", "--plan", "two", "--digest", planned["digest"])["outcome"]

    assert ["test -f first.txt", "test -f second.txt"] == sorted(step["check"] for step in planned["steps"])
    assert [step["name"] for step in planned["steps"]] == merged["merged"]
    assert {"first.txt", "second.txt", ".git/index", "refs/heads/main"} == story.changed_since(mine)
    assert {"Ann: First", "Ann: Second"} <= {*story.log("main")}
