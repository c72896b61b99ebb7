"""What agents announce as slash commands: names that a prompt can run, with one line of description."""

from kasmon.backends.common.slash_commands import LONGEST, MOST, build_announcement
from kasmon.model.events import SlashCommand


def test_a_command_has_a_name_without_a_slash_and_one_clean_line_of_description() -> None:
    event = build_announcement(
        [("/compact", "\nFree \x1b[31mcontext\nand more", "[what]"), ("compact", "again", "")], 1.0
    )

    assert (SlashCommand(command="compact", text="Free context", hint="[what]"),) == event.slash_commands


def test_what_no_prompt_could_run_is_left_out_and_a_list_without_end_is_cut() -> None:
    names = ("", "/", "two words", "bad\x07bell", "x" * (LONGEST + 1), "fine")
    assert ["fine"] == [
        each.command for each in build_announcement([(name, "", "") for name in names], 1.0).slash_commands
    ]

    event = build_announcement(((f"c{number}", "x" * 1000, "") for number in range(MOST * 2)), 1.0)
    assert MOST == len(event.slash_commands)
    assert {LONGEST} == {len(each.text) for each in event.slash_commands}
