"""What several commands take, each with its help."""

from typing import Annotated

from cyclopts import Parameter, validators

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object, for programs.")]
Session = Annotated[str, Parameter(help="Id, exact name, or the beginning of an id (3 letters or more).")]
Text = Annotated[str | None, Parameter(allow_leading_hyphen=True, help="The prompt; `-` reads it from stdin.")]
Timeout = Annotated[float | None, Parameter(validator=validators.Number(gte=0), help="Give up after so many seconds.")]
States = Annotated[str | None, Parameter(help="States, with commas: starting, idle, working, asking, limited, ...")]
