"""`kasmon agents ls --known` and `update`: the agents of the Agent Client Protocol's registry."""

import shlex
import shutil
import time
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from kasmon.agents import acp_registry
from kasmon.agents.acp_registry import LARGEST, URL, RegisteredAgent
from kasmon.agents.catalog import AgentCatalog, catalog
from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_json, say
from kasmon.cli.output.table import aligned
from kasmon.errors import UnavailableError, UsageError
from kasmon.paths import Paths, private_folder, user_paths, write_private
from kasmon.sanitize import clean_line
from kasmon.toml_struct import read_text

TIMEOUT_S: Final = 20
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def list_registry(where: Paths, *, wants_json: bool) -> None:
    """List the agents of the registry, the profile that kasmon has for each, and how npm or its program starts it."""
    agents = catalog(where)
    rows = [("ID", "TITLE", "VERSION", "PROFILE", "START")]
    objects = []
    for each in acp_registry.load(where):
        profile = find_profile(each, agents)
        objects.append(
            {
                "id": each.id,
                "title": each.name,
                "version": each.version,
                "profile": profile or None,
                "installed": any(shutil.which(name) for name in each.programs),
                "start": list(each.start),
            }
        )
        rows.append((each.id, each.name, each.version, profile or "-", shlex.join(each.start) or "-"))
    if wants_json:
        print_json(known=objects)
    else:
        say(*aligned([tuple(str(clean_line(cell)) for cell in row) for row in rows]))
        if not where.acp_registry.exists():
            note("this snapshot came with kasmon; `kasmon agents update` downloads the whole registry.")


def update(
    source: Annotated[str, Arg("URL or file of the registry.", ("SOURCE",))] = URL, /, *, wants_json: Json = False
) -> None:
    """Get the registry of agents that speak the Agent Client Protocol, for `agents ls --known`. It installs none."""
    where = user_paths()
    is_url = source.startswith(("http:", "https:"))
    text = download(source) if is_url else read_text(Path(source), LARGEST)
    agents = acp_registry.parse(text, source)
    try:
        private_folder(where.acp_registry.parent)
        write_private(where.acp_registry, text.encode())
    except OSError as error:
        why = error.strerror or error
        raise UnavailableError(f"cannot write {str(where.acp_registry)!r}: {why}.") from error
    if wants_json:
        print_json(file=str(where.acp_registry), agents=len(agents))
    else:
        note(f"{len(agents)} agents are in {str(where.acp_registry)!r}: `kasmon agents ls --known` lists them.")


def download(url: str) -> str:
    """Return what *url* has. A redirect is refused.

    Raises:
        UsageError: if *url* is neither https nor on loopback.
        UnavailableError: if it cannot be reached, takes over 20 s, has more than 2 MB, or is not UTF-8.
    """
    import http.client
    import urllib.request  # only here: it takes 30 ms to load

    class Direct(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """Follow none: the caller named this address."""

    try:
        address = urlsplit(url)
        is_trusted = address.scheme == "https" or address.hostname in LOOPBACK
    except ValueError:
        is_trusted = False
    if not is_trusted:
        raise UsageError(f"{url!r} is not an https address.", hint="Download it yourself, and name the file.")
    ends_at = time.monotonic() + TIMEOUT_S
    content = b""
    try:
        with urllib.request.build_opener(Direct).open(url, timeout=TIMEOUT_S) as response:
            while part := response.read1(65536):
                content += part
                if len(content) > LARGEST:
                    raise UnavailableError(f"cannot use {url!r}: it is larger than {LARGEST // 2**20} MB.")
                if time.monotonic() > ends_at:
                    raise TimeoutError(f"it takes more than {TIMEOUT_S} s")
        return content.decode()
    except (OSError, http.client.HTTPException, ValueError) as error:  # a UnicodeDecodeError is a ValueError
        why = clean_line(str(getattr(error, "reason", error)))
        raise UnavailableError(f"cannot download {url!r}: {why}.", hint="Or name a file that has it.") from error


def find_profile(agent: RegisteredAgent, agents: AgentCatalog) -> str:
    """Return the name of the profile that kasmon has for *agent*; empty if it has none."""
    return next((profile.name for name in agent.programs if (profile := agents.find(name))), "")
