"""`kasmon export`: all of one session, written out."""

from kasmon.commands.objects import answer, session_object
from kasmon.commands.output import as_json, note, say_block
from kasmon.paths import expanded, places
from kasmon.supervisor.export import Format, as_markdown, as_objects, write
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once


def export(wanted: str, format_: Format, out: str | None) -> None:
    """Print session *wanted* as *format_*, or put it into the new file *out*.

    Raises:
        NotFoundError: if there is no such session.
        RefusedError: if the file is there already.
        KasmonError: if it cannot be written.
    """
    where = places()
    session = find(look_once(where), wanted)
    if format_ == "json":
        text = as_json(answer(session=session_object(session), **as_objects(where, session)))
    else:
        text = as_markdown(where, session)
    if out is None or out == "-":
        print(text, flush=True) if format_ == "json" else say_block(text)
        return
    write(expanded(out), text if text.endswith("\n") else f"{text}\n")
    note(f"{session.name} is written to {out!r}.")
