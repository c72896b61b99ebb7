"""`kasmon grep` and `kasmon export` as somebody types them: what is printed, the exit codes, that nothing changes."""

import json

from kasmon.model.commands import Mode
from tests.supervisor.search.test_search import OLD, begun, printed, said
from tests.support.cli.cli_runner import Cli


def talks(kasmon: Cli) -> None:
    kasmon.paths.sessions.mkdir(parents=True)
    begun(kasmon.paths, "fix-auth", said("first\nthe token is refused\x1b[31m!\nlast", OLD))
    docs = begun(kasmon.paths, "docs", mode=Mode.TMUX)
    printed(kasmon.paths, docs, "$ make docs", "make: no token", shown=("done",))


def test_each_match_has_its_session_time_place_and_line_with_its_context(kasmon: Cli) -> None:
    talks(kasmon)
    done = kasmon("grep", "token", TZ="UTC")

    assert (0, "") == (done.code, done.err)
    assert [
        "docs (sdocs): 1 hit",
        "  1970-01-12 13:46:40  printed  terminal:1",
        "      $ make docs",
        "    > make: no token",
        "fix-auth (sfix-auth): 1 hit",
        "  1970-01-12 13:46:40  said     transcript:0",
        "      first",
        "    > the token is refused!",
        "      last",
    ] == sorted_by_session(done.out.splitlines())
    assert not kasmon.paths.index.exists()
    assert not kasmon.paths.search_index.exists()


def sorted_by_session(lines: list[str]) -> list[str]:
    """The lines by session, by name: which was used last depends on the clock."""
    groups: list[list[str]] = []
    for line in lines:
        if line.startswith(" "):
            groups[-1].append(line)
        else:
            groups.append([line])
    return [line for group in sorted(groups) for line in group]


def test_json_has_every_field_and_nothing_found_is_exit_code_1(kasmon: Cli) -> None:
    talks(kasmon)
    done = kasmon("grep", "-i", "TOKEN", "--session", "fix-auth", "--json")
    [hit] = done.json["hits"]

    assert {"session": "sfix-auth", "name": "fix-auth", "at": OLD, "where": "transcript", "what": "said"} == {
        name: hit[name] for name in ("session", "name", "at", "where", "what")
    }
    assert ("the token is refused!", 4, 9, ["first"], ["last"]) == tuple(
        hit[name] for name in ("line", "start", "end", "before", "after")
    )
    nothing = kasmon("grep", "--json", "no such words")
    assert (1, []) == (nothing.code, nothing.json["hits"])
    said_so = kasmon("grep", "no such words")
    assert (1, "") == (said_so.code, said_so.out)
    assert "no match for 'no such words' in any session" in said_so.err


def test_an_invalid_search_is_refused_and_a_leading_hyphen_is_text(kasmon: Cli) -> None:
    talks(kasmon)

    assert 2 == kasmon("grep", "").code
    assert 2 == kasmon("grep").code
    assert 2 == kasmon("grep", "-E", "a(").code
    assert 3 == kasmon("grep", "x", "--session", "nobody").code
    assert 1 == kasmon("grep", "--", "-x").code
    assert 0 == kasmon("grep", "-E", "no.*n$", "-C", "0", "-m", "1").code


def test_a_session_is_exported_to_stdout_or_a_new_file(kasmon: Cli) -> None:
    talks(kasmon)
    shown = kasmon("export", "fix-auth")
    assert (0, "") == (shown.code, shown.err)
    assert "the token is refused!" in shown.out
    written = kasmon("export", "docs", "--format", "json", "--out", "docs.json")

    assert (0, "") == (written.code, written.out)
    content = json.loads((kasmon.home / "docs.json").read_text())
    assert (1, "docs", ["$ make docs", "make: no token", "done"]) == (
        content["schema"],
        content["session"]["name"],
        [each["line"] for each in content["terminal"]],
    )
    again = kasmon("export", "docs", "--out", "docs.json")
    assert (4, "already exists" in again.err) == (again.code, True)
    assert 3 == kasmon("export", "nobody").code
