"""In which folders a structured agent may start: where its project brings nothing that runs, or its user trusts it."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kasmon.backends.project_trust import check, project_files
from kasmon.errors import UntrustedFolderError

HOOKS = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch here"}]}]}}
SERVERS = {"mcpServers": {"own": {"command": "touch", "args": ["here"]}}}


def file(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of somebody's."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path / "project"


def refused(agent: str, folder: Path, home: Path, *flags: str, **variables: str) -> str:
    """Why *agent* may not start in *folder*; empty where it may."""
    backend = "acp" if agent == "gemini" else agent
    try:
        check(backend, (f"/bin/{agent}", *flags), str(folder), {"HOME": str(home), **variables})
    except UntrustedFolderError as error:
        return str(error)
    return ""


class TestClaude:
    def trust(self, home: Path, *folders: Path, of: str = ".claude.json") -> None:
        file(home / of, {"projects": {str(folder): {"hasTrustDialogAccepted": True} for folder in folders}})

    def test_a_folder_without_executable_settings_needs_no_trust(self, project: Path, home: Path) -> None:
        file(project / "CLAUDE.md", "Be brief.")
        file(project / ".claude" / "settings.json", {"model": "opus", "permissions": {"deny": ["Read(.env)"]}})
        file(project / ".claude" / "commands" / "greet.md", "---\ndescription: x\n---\nSay hello.")
        file(project / ".claude" / "settings.local.json", {"hooks": {}, "enableAllProjectMcpServers": False})

        assert "" == refused("claude", project, home)

    @pytest.mark.parametrize(
        ("path", "content", "shown"),
        [
            (".claude/settings.json", HOOKS, "hooks (SessionStart) in .claude/settings.json"),
            (".claude/settings.local.json", HOOKS, "hooks (SessionStart) in .claude/settings.local.json"),
            (".claude/settings.json", {"apiKeyHelper": "./key"}, "apiKeyHelper in .claude/settings.json"),
            (".claude/settings.json", {"env": {"ANTHROPIC_BASE_URL": "http://x"}}, "env in .claude/settings.json"),
            (".claude/settings.json", {"permissions": {"allow": ["Bash"]}}, "permissions (allow) in"),
            (".claude/settings.json", {"inventedTomorrow": "./run"}, "inventedTomorrow in .claude/settings.json"),
            (".claude/settings.json", "{", ".claude/settings.json, which cannot be read"),
            (".mcp.json", SERVERS, "mcpServers (own) in .mcp.json"),
            (".claude/commands/x.md", "---\nallowed-tools: Bash(touch:*)\n---\n!`touch x`", ".claude/commands/x.md"),
            (".claude/skills/x/SKILL.md", "---\nhooks:\n  Stop: []\n---", ".claude/skills/x/SKILL.md"),
            (".claude/agents/x.md", "---\nname: x\nmcpServers:\n  - own\n---", ".claude/agents/x.md"),
        ],
    )
    def test_settings_that_run_programs_are_named(
        self, path: str, content: object, shown: str, project: Path, home: Path
    ) -> None:
        file(project / path, content)

        why = refused("claude", project, home)
        assert shown in why
        assert repr(str(project)) in why
        assert "--mode tmux" in why
        assert f"projects[{str(project)!r}].hasTrustDialogAccepted" in why
        assert str(home / ".claude.json") in why

        self.trust(home, project)
        assert "" == refused("claude", project, home)

    @pytest.mark.parametrize(
        "text",
        [
            '---\n"allowed-tools": Bash\n---\n',
            "---\n'hooks' : {}\n---\n",
            '---\n"allowed-t\\x6fols": Bash\n---\n',
            "---\n{description: x, allowed-tools: Bash}\n---\n",
            "---\n  allowed-tools: Bash\n---\n",
            "---\n? hooks\n: {}\n---\n",
            "---\nmetadata: &a\n  allowed-tools: Bash\n<<: *a\n---\n",
            "---\ndescription: x\rhooks: {}\n---\n",
            "\ufeff\ufeff---\nhooks: {}\n---\n",
            "---\n- hooks\n---\n",
            "---\nname: x\npermissionMode: bypassPermissions\n---\n",
            "---\ninvented-tomorrow: x\n---\n",
            "---\nname: x\n-invented: y\n---\n",
            "---\nname:x: y\n---\n",
            "The state: ```!\ngit status\n```",
            "The state: !`git status`",
        ],
    )
    def test_a_text_that_could_run_a_command_is_named_in_any_form_of_yaml(
        self, text: str, project: Path, home: Path
    ) -> None:
        file(project / ".claude" / "commands" / "x.md", text)

        assert ".claude/commands/x.md" in refused("claude", project, home)

    @pytest.mark.parametrize(
        "text",
        [
            "Say hello!\n\nhooks: none\nallowed-tools: none",
            "---\nname: x\n# hooks: none\n\ntools:\n- Read\n  - Grep\n---\nhooks: none",
            "---\ndescription: >\n  long\n\thooks: none\n---\n",
            "---\nmetadata:\n  allowed-tools: Bash\nwhen_to_use :\n---\n",
        ],
    )
    def test_a_text_without_commands_needs_no_trust(self, text: str, project: Path, home: Path) -> None:
        for name in ("commands/x.md", "skills/x/SKILL.md", "agents/x.md"):
            file(project / ".claude" / name, text)

        assert "" == refused("claude", project, home)

    def test_only_a_skills_own_text_can_run_a_command_in_any_letter_case(self, project: Path, home: Path) -> None:
        rule = file(project / ".claude" / "skills" / "x" / "rules" / "a.md", "---\ntags: x\n---\n!`date`")
        assert "" == refused("claude", project, home)

        rule.rename(rule.with_name("SKILL.MD"))
        assert ".claude/skills/x/rules/SKILL.MD" in refused("claude", project, home)

    def test_permissions_that_also_allow_something_need_trust(self, project: Path, home: Path) -> None:
        file(project / ".claude" / "settings.json", {"permissions": {"deny": ["Read(.env)"], "allow": ["Bash"]}})

        assert "permissions" in refused("claude", project, home)

    def test_servers_count_from_all_folders_above_and_settings_only_from_the_folder_itself(
        self, project: Path, home: Path
    ) -> None:
        file(project / ".claude" / "settings.json", HOOKS)
        file(project.parent / ".claude" / "commands" / "x.md", "!`date`")
        below = project / "a" / "b"
        below.mkdir(parents=True)
        assert "" == refused("claude", below, home)

        file(project.parent / ".mcp.json", SERVERS)
        assert f"mcpServers (own) in {project.parent / '.mcp.json'}" in refused("claude", below, home)

    def test_trust_reaches_down_and_not_into_another_repository(self, project: Path, home: Path) -> None:
        below = file(project / "a" / ".mcp.json", SERVERS).parent
        self.trust(home, project.parent)
        assert refused("claude", below, home)
        self.trust(home, project)
        assert "" == refused("claude", below, home)

        (project / ".git").rmdir()
        self.trust(home, project.parent)
        assert "" == refused("claude", below, home)

    @pytest.mark.parametrize("answer", [False, None, 1, "no", {}])
    def test_only_an_explicit_yes_is_trust(self, answer: object, project: Path, home: Path) -> None:
        file(project / ".mcp.json", SERVERS)
        file(home / ".claude.json", {"projects": {str(project): {"hasTrustDialogAccepted": answer}}})

        assert refused("claude", project, home)

    def test_the_trust_of_a_repository_is_that_of_its_worktrees_if_it_knows_them(
        self, project: Path, home: Path
    ) -> None:
        tree = file(project.parent / "tree" / ".mcp.json", SERVERS).parent
        kept = project / ".git" / "worktrees" / "tree"
        link = file(tree / ".git", f"gitdir: {kept}\n")
        file(kept / "commondir", "../..\n")
        self.trust(home, project)

        assert refused("claude", tree, home)  # anybody could write that
        file(kept / "gitdir", f"{project.parent / 'other' / '.git'}\n")
        assert refused("claude", tree, home)
        file(kept / "gitdir", f"{link}\n")
        assert "" == refused("claude", tree, home)

    @pytest.mark.parametrize("flags", [("--setting-sources", "user"), ("--setting-sources=user",)])
    def test_without_the_project_settings_nothing_of_the_project_runs(
        self, flags: tuple[str, ...], project: Path, home: Path
    ) -> None:
        file(project / ".mcp.json", SERVERS)

        assert "" == refused("claude", project, home, *flags)
        for sources in ("project", "user,project", "user,local", "local"):
            assert refused("claude", project, home, "--setting-sources", sources), sources

    def test_the_users_own_settings_are_not_those_of_a_project(self, home: Path) -> None:
        file(home / ".claude" / "settings.json", HOOKS)
        file(home / ".claude" / "commands" / "x.md", "!`date`")

        assert "" == refused("claude", home, home)
        (home / "notes").mkdir()
        assert "" == refused("claude", home / "notes", home)

    def test_the_config_folder_is_that_of_its_variable(self, project: Path, home: Path, tmp_path: Path) -> None:
        file(project / ".mcp.json", SERVERS)
        self.trust(home, project)

        assert refused("claude", project, home, CLAUDE_CONFIG_DIR=str(tmp_path / "own"))
        self.trust(tmp_path / "own", project)
        assert "" == refused("claude", project, home, CLAUDE_CONFIG_DIR=str(tmp_path / "own"))
        assert refused("claude", project, home, CLAUDE_CODE_IGNORE_PERSISTED_TRUST="1")

    def test_a_text_is_found_at_any_depth_and_behind_any_number_of_other_files(self, project: Path, home: Path) -> None:
        deep = file(project / ".claude" / "commands" / "a/b/c/d/e/f/g/x.md", "!`date`")
        assert ".claude/commands/a/b/c/d/e/f/g/x.md" in refused("claude", project, home)

        deep.rename(project / ".claude" / "commands" / "x.md")
        for number in range(301):
            file(project / ".claude" / "commands" / f"a{number}.txt", "")
        assert ".claude/commands/x.md" in refused("claude", project, home)

    def test_a_folder_that_is_too_large_to_check_counts_as_untrusted(self, project: Path, home: Path) -> None:
        commands = project / ".claude" / "commands"
        for number in range(301):
            file(commands / f"{number}.md", "Say hello.")
        assert "more in .claude/commands" in refused("claude", project, home)

        shutil.rmtree(commands)
        commands.mkdir()
        for number in range(30):
            (commands / str(number)).symlink_to(".")
        assert "more in .claude/commands" in refused("claude", project, home)

    def test_many_links_to_one_large_folder_are_not_followed_for_long(
        self, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(project_files, "ENTRIES", 50)
        for number in range(21):
            file(project / ".claude" / "commands" / "0" / f"{number}.txt", "")
        assert "" == refused("claude", project, home)

        for name in ("1", "2"):
            (project / ".claude" / "commands" / name).symlink_to("0")
        assert "more in .claude/commands" in refused("claude", project, home)

    def test_a_folder_that_cannot_be_listed_counts_as_untrusted(
        self, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its files may be readable all the same. Root can list each folder, so the function of `os` is replaced."""
        text, scandir = file(project / ".claude" / "skills" / "x" / "SKILL.md", "!`date`"), os.scandir

        def refuse(path: Path) -> Any:
            if Path(path) == text.parent:
                raise PermissionError
            return scandir(path)

        monkeypatch.setattr(os, "scandir", refuse)

        assert ".claude/skills/x, which cannot be read" in refused("claude", project, home)

    @pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="this system has no such file")
    def test_a_pipe_is_not_waited_for(self, project: Path, home: Path) -> None:
        (project / ".claude" / "commands").mkdir(parents=True)
        (project / ".claude" / "commands" / "x.md").symlink_to("/proc/kmsg")

        refused("claude", project, home)

    def test_hostile_names_and_files_do_no_harm(self, project: Path, home: Path) -> None:
        os.mkfifo(file(project / ".claude" / "x", "").with_name("settings.json"))
        file(project / ".mcp.json", {"mcpServers": {f"\x1b]0;owned\x07{number}": {} for number in range(5000)}})
        for number in range(9):
            file(project / ".claude" / "agents" / f"{number}.md", "---\nhooks: x\n---")

        why = refused("claude", project, home)
        assert "\x1b" not in why
        assert "settings.json, which cannot be read" in why
        assert "and 5 more" in why
        assert 2000 > len(why)


class TestGemini:
    def test_a_folder_without_settings_needs_no_trust(self, project: Path, home: Path) -> None:
        file(project / ".gemini" / "settings.json", '{"ui": {"theme": "x"}} // mine')
        file(project / "GEMINI.md", "Be brief.")

        assert "" == refused("gemini", project, home, "--acp")

    @pytest.mark.parametrize("content", [HOOKS, SERVERS, {"tools": {"discoveryCommand": "./x"}}])
    def test_project_settings_are_named_with_how_to_decide(
        self, content: Mapping[str, Any], project: Path, home: Path
    ) -> None:
        file(project / ".gemini" / "settings.json", content)

        why = refused("gemini", project, home, "--acp")
        assert ".gemini/settings.json" in why
        assert repr(str(project)) in why
        for way in ("--mode tmux", "--skip-trust", str(home / ".gemini" / "trustedFolders.json")):
            assert way in why

    @pytest.mark.parametrize(
        ("path", "level"),
        [(".", "TRUST_FOLDER"), ("..", "TRUST_FOLDER"), (".", "DO_NOT_TRUST"), ("child", "TRUST_PARENT")],
    )
    def test_a_folder_that_the_user_decided_about_needs_no_question(
        self, path: str, level: str, project: Path, home: Path
    ) -> None:
        """In one that was not trusted gemini leaves the project's things out."""
        file(project / ".gemini" / "settings.json", HOOKS)
        file(home / ".gemini" / "trustedFolders.json", {os.path.normpath(project / path): level})

        assert "" == refused("gemini", project, home, "--acp")

    def test_a_decision_about_another_folder_does_not_apply(self, project: Path, home: Path) -> None:
        file(project / ".gemini" / "settings.json", HOOKS)
        file(home / ".gemini" / "trustedFolders.json", {f"{project}-2": "TRUST_FOLDER", str(project): "MAYBE"})

        assert refused("gemini", project, home, "--acp")

    def test_the_user_may_turn_the_question_off(self, project: Path, home: Path) -> None:
        file(project / ".gemini" / "settings.json", HOOKS)

        assert "" == refused("gemini", project, home, "--acp", "--skip-trust")
        assert "" == refused("gemini", project, home, "--acp", GEMINI_CLI_TRUST_WORKSPACE="true")
        file(home / ".gemini" / "settings.json", {"security": {"folderTrust": {"enabled": False}}})
        assert "" == refused("gemini", project, home, "--acp")


def test_an_agent_without_a_trust_question_gets_none(project: Path, home: Path) -> None:
    file(project / ".mcp.json", SERVERS)

    assert "" == refused("opencode", project, home)
    assert "" == refused("codex", project, home)


def test_an_agent_is_recognized_behind_its_runner(project: Path, home: Path) -> None:
    file(project / ".gemini" / "settings.json", HOOKS)
    with pytest.raises(UntrustedFolderError):
        check("acp", ("npx", "@google/gemini-cli", "--acp"), str(project), {"HOME": str(home)})
