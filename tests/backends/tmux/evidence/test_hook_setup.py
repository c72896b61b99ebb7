"""Sources that cannot say anything of an agent are told, with the reason."""

from kasmon.backends.tmux.evidence.hook_setup import absent


def test_what_claude_does_not_report_is_told_until_it_does_and_of_an_unknown_program_nothing() -> None:
    told = absent("claude", ("/opt/claude", "--settings", "{}"), {"screen", "registry"})
    assert {"program", "hook"} == set(told)
    assert "tmux does not" in told["program"]
    assert "its flags already contain --settings" == told["hook"]
    assert {} == absent("claude", ("/opt/claude",), {"screen", "program"})

    assert {} == absent("vim", ("vim",), set())
    assert {} == absent("codex", ("codex",), {"program"})
