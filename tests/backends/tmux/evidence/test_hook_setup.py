"""Sources that cannot say anything of an agent are told, with the reason."""

from kasmon.backends.tmux.evidence.hook_setup import absent


def test_what_claude_does_not_report_in_tmux_is_told_until_it_does() -> None:
    told = absent("claude", ("/opt/claude", "--settings", "{}"), {"screen", "registry"})
    assert {"program", "hook"} == set(told)
    assert "tmux does not" in told["program"]
    assert "its flags already contain --settings" == told["hook"]

    assert {} == absent("claude", ("/opt/claude",), {"screen", "program"})


def test_of_a_program_that_nobody_knows_nothing_is_missed() -> None:
    assert {} == absent("vim", ("vim",), set())
    assert {} == absent("codex", ("codex",), {"program"})
