"""The commands of the documents: where they are, and a run of those of one page, as a person runs them."""

import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import msgspec

from tests.support.cli.cli_runner import Awaited, Cli, Done
from tests.support.cli.fork_server import KASMON, ForkServer
from tests.support.tui.pty_program import OnTerminal
from tests.support.wait import until

ROOT = Path(__file__).parents[3]
PAPERS = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*"))
"""All documents, and the examples, whose comments name commands."""
FENCE = re.compile(r" *```(\w*)")
SHELLS = ("bash", "console", "sh", "shell")
"""Languages of fenced blocks that have commands."""
COMMENT = re.compile(r"^# {4,}(kasmon .*)$", re.MULTILINE)
CTRL_C = 130


def bare(line: str) -> str:
    """*line* without its comment, and without what is done with what it prints."""
    return re.split(r" [#|>] | >", line)[0].strip()


def commands_of(page: Path) -> list[str]:
    """The commands of *page*, from top to bottom: the lines of its blocks, and of an example those in its comments."""
    text = page.read_text("utf-8")
    return list(map(bare, COMMENT.findall(text) if page.suffix != ".md" else block_lines(text)))


def block_lines(text: str) -> list[str]:
    """The lines of a Markdown text's blocks of commands: indented ones, and fenced ones of a shell.

    Raises:
        ValueError: if a fence names no language; it could have commands.
    """
    lines: list[str] = []
    language: str | None = None
    is_block, follows_blank = False, True
    for line in text.splitlines():
        if fence := FENCE.match(line):
            if language is None and not fence[1]:
                raise ValueError(f"{line!r} names no language")
            language = fence[1] if language is None else None
            continue
        is_block = language is None and line.startswith("    ") and (is_block or follows_blank)
        follows_blank = not line.strip()
        if line.strip() and (is_block or language in SHELLS):
            lines.append(line)
    return lines


class PageRun:
    """Runs the commands of one page in their order; with its `with` block everything that they started ends.

    Attributes:
        kasmon: the command line where the person works.
        text: the page.
        filled: an example on the page -> what this run has in its place; of two, the longer one counts.
        other: the command line of the other machine that the page is about.
        served: what runs until Ctrl+C.
    """

    def __init__(self, kasmon: Cli, fork_server: ForkServer, text: str) -> None:
        """*fork_server*: runs the commands of further machines."""
        self.kasmon, self.text = kasmon, text
        self.filled = {"--agent claude": "--agent scripted", "~": str(kasmon.home)}
        self._fork_server = fork_server
        self._ending = ExitStack()
        self.other = kasmon
        self.served: list[OnTerminal] = []

    def words(self, line: str) -> list[str]:
        """The program of *line* and its arguments, with what this run has in place of the examples."""
        for example in sorted(self.filled, key=len, reverse=True):
            line = line.replace(example, self.filled[example])
        return shlex.split(line)

    def open_machine(self) -> Cli:
        """The command line of one more machine, which ends with this run."""
        return self._ending.enter_context(closing(Cli(self._fork_server)))

    def file(self, name: str) -> str:
        """The fenced block of the page that is called *name*, as ``toml config.toml``."""
        (found,) = re.findall(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)
        return str(found)

    def configure(self, text: str) -> None:
        """Add *text* to the config."""
        with self.kasmon.paths.config_file.open("a", encoding="utf-8") as file:
            file.write(text)

    def put_program(self, name: str, text: str) -> None:
        """Put a program called *name* on PATH."""
        folder = self.kasmon.home / "bin"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
        if not self.kasmon.environment["PATH"].startswith(f"{folder}:"):
            self.kasmon.environment["PATH"] = f"{folder}:{self.kasmon.environment['PATH']}"

    def serve(self, line: str, ready: str, kasmon: Cli | None = None) -> OnTerminal:
        """Start *line*, which runs until Ctrl+C, here or at *kasmon*, and wait until it has printed *ready*."""
        where, words = kasmon or self.kasmon, self.words(line)
        argv = [*KASMON, *words[1:]] if words[0] == "kasmon" else [str(shutil.which(words[0])), *words[1:]]
        program = self._ending.enter_context(OnTerminal(argv, where.home, environment=where.environment, columns=400))
        self._ending.callback(self._end, program)  # else what it started would outlive it
        self.served.append(program)
        until(lambda: ready.encode() in program.seen or not program.is_up, what=line)
        assert ready.encode() in program.seen, program.seen
        return program

    def interrupt(self) -> None:
        """Press Ctrl+C in the last program that was started so."""
        self._end(self.served.pop())

    def _end(self, program: OnTerminal) -> None:
        if program.pid:
            program.send(b"\x03")
            assert program.ended() in (0, CTRL_C), program.seen

    def until_idle(self, session: str) -> None:
        until(lambda: self.kasmon.json("show", session)["session"]["state"] == "idle", what=f"{session} idle")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ending.__exit__(kind, error, at)


Act = Callable[[PageRun, str], object]
"""What runs a command of a page."""


class PageStory(msgspec.Struct, frozen=True):
    """How the commands of a page are run.

    Attributes:
        left_out: a command -> why no test can run it, or which other one does.
        fixture: makes what the page presumes, and at its end asserts what is true then.
        before: a command -> what a person does on the page before it.
        acts: a command -> how it is run; all others are awaited, and succeed.
    """

    left_out: Mapping[str, str] = MappingProxyType({})
    fixture: Callable[[PageRun], AbstractContextManager[object]] = nullcontext
    before: Mapping[str, Callable[[PageRun], object]] = MappingProxyType({})
    acts: Mapping[str, Act] = MappingProxyType({})


def succeed(run: PageRun, line: str) -> Done:
    """Run *line* to its end, which is a success."""
    words = run.words(line)
    assert "kasmon" == words[0], f"{line} is no command of kasmon's: say how it is run"
    done = run.kasmon(*words[1:])
    assert 0 == done.code, (line, done.out, done.err)
    return done


def type_at(*typed: tuple[Awaited, str]) -> Act:
    """A command on a terminal, that ends once *typed* was typed: each is what is awaited, and what is typed then."""

    def act(run: PageRun, line: str) -> None:
        code, shown = run.kasmon.terminal(*run.words(line)[1:], typed=typed)
        assert 0 == code, (line, shown)

    return act


AGREE = type_at(("else to cancel:", "yes\r"))
