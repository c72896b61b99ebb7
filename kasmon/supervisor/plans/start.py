"""A plan is agreed to: its id claimed, its text kept as it was shown, its runner started. And started again."""

import hashlib
import os
import stat
import time
from pathlib import Path

from kasmon.errors import PlanNotFoundError, RefusedError, UnavailableError, UsageError
from kasmon.host.alive import lock_holder
from kasmon.host.spawn import spawn_runner
from kasmon.model.plan.fact import PlanBegan, PlanChanged
from kasmon.model.plan.read import is_plan
from kasmon.model.plan.spec import Plan
from kasmon.paths import Places, private_folder, write_private
from kasmon.store.plan import PlanBook, plans
from kasmon.supervisor.worktree import proper_branch


def agree(places: Places, plan: Plan, text: str, file: Path, folder: Path, *, headless: bool) -> PlanBook:
    """The book of a plan that a person agreed to run; nothing of it runs yet.

    Raises:
        UnavailableError: if it cannot be written.
    """
    try:
        places.make()
        private_folder(places.plans)
        id_ = _claimed(places, _id_of(plan.name))
        book = PlanBook(places, id_)
        private_folder(book.folder / "agreed")
        own = file.name if is_plan(file.name) else f"{file.stem}.md"
        write_private(book.folder / "agreed" / own, text.encode())
        write_private(book.notes, b"")
    except OSError as error:
        raise UnavailableError(
            f"cannot write into {str(places.plans)!r}: {error.strerror or error}.",
            hint="`kasmon doctor` looks into it.",
        ) from error
    book.add(
        PlanBegan(
            at=time.time(),
            plan=id_,
            name=plan.name,
            file=str(file),
            folder=str(folder),
            digest=digest(text),
            headless=headless,
        )
    )
    book.more()
    return book


def run(places: Places, book: PlanBook) -> None:
    """Have a runner for *book*; nothing where it has one, or is over.

    Raises:
        UnavailableError: if no process can be started.
    """
    book.more()
    if book.run.state == "ended" or is_run(book):
        return
    try:
        spawn_runner(places, book.plan)
    except OSError as error:
        raise UnavailableError(f"cannot run plan {book.plan!r}: {error.strerror or error}.") from error


def is_run(book: PlanBook) -> bool:
    """Whether a process runs it now."""
    return lock_holder(book.lock) is not None


def apply_edit(book: PlanBook, text: str) -> None:
    """Take *text*, which was read without fault and shown to a person, for the plan from now on."""
    write_private(book.agreed, text.encode())
    book.add(PlanChanged(at=time.time(), digest=digest(text)))


def found(places: Places, wanted: str) -> PlanBook:
    """The plan with the id *wanted*, or the newest run of the file *wanted*.

    Raises:
        PlanNotFoundError: if there is none.
    """
    known = plans(places)
    if wanted in known:
        book = PlanBook(places, wanted)
        book.more()
        return book
    path = str(Path(wanted).absolute())
    books = []
    for id_ in known:
        book = PlanBook(places, id_)
        book.more()
        if book.run.file == path:
            books.append(book)
    if not books:
        raise PlanNotFoundError(wanted)
    return max(books, key=lambda book: book.run.began_at)


def digest(text: str) -> str:
    """By which a plan's text is told from every other."""
    return hashlib.sha256(text.encode()).hexdigest()


def text_of(file: Path) -> str:
    """What *file* holds.

    Raises:
        RefusedError: if it is no text, or larger than 8 MiB.
        PlanNotFoundError: if there is no such file.
    """
    try:
        seen = file.stat()
        if stat.S_ISFIFO(seen.st_mode):
            raise RefusedError(f"{str(file)!r} is a pipe: it would be gone once it was read.")
        if seen.st_size > 8 << 20:
            raise RefusedError(f"{str(file)!r} is larger than 8 MiB: that is no plan.")
        return file.read_text("utf-8-sig")
    except IsADirectoryError as error:
        raise PlanNotFoundError(str(file), "it is a folder, and a plan is a file") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PlanNotFoundError(str(file), "there is no such file") from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"{str(file)!r} is not UTF-8.") from error
    except OSError as error:
        raise RefusedError(f"{str(file)!r} cannot be read: {error.strerror or error}.") from error


def _id_of(name: str) -> str:
    try:
        return proper_branch((name.lower(),))[:40].strip("-") or "plan"
    except UsageError:  # it has no letter that a branch may have
        return "plan"


def _claimed(places: Places, name: str) -> str:
    """An id for a plan called *name*; its folder is ours from now on."""
    number = 1
    while True:
        id_ = name if number == 1 else f"{name}-{number}"
        try:
            os.mkdir(places.plan(id_), mode=0o700)  # noqa: PTH102  # a name that is taken is no error of `Path`
        except FileExistsError:
            number += 1
        else:
            return id_
