"""Pages about the dashboard and the requests in a browser: `kasmon web` runs beside the commands."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from kasmon.bus.nats.creation import find_free_port
from tests.support.cli.page_run import PageRun, PageStory, succeed
from tests.support.cli.page_stories.other_machines import box_with_kasmon
from tests.support.web.certificate import NAME, CertificateFiles

BEGIN = "http://127.0.0.1:"
"""How a link begins."""
SERVES = "kasmon web --port 8000"
SERVES_OTHERS = "kasmon web --bind 0.0.0.0 --tls-cert chain.pem --tls-key key.pem"
TUNNEL = "ssh -t -L 8000:127.0.0.1:8000 HOST kasmon web --port 8000"


def get(link: str, port: int = 0, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """The status and the text of the page at *link*, which *port* of loopback leads to where it is given."""
    parts = urlsplit(link)
    at = parts._replace(netloc=f"127.0.0.1:{port or parts.port}").geturl()
    try:
        with urlopen(Request(at, headers={"Host": parts.netloc}), timeout=60, context=context) as page:
            return page.status, page.read().decode()
    except HTTPError as error:
        with error:
            return error.code, ""


def link_on(run: PageRun) -> str:
    """The link that `kasmon web` has printed."""
    text = run.served[-1].seen.decode()
    return BEGIN + text.split(BEGIN)[1].split()[0]


def open_dashboard(run: PageRun, line: str) -> None:
    run.serve(line, "Ctrl+C stops")
    run.served[-1].until(BEGIN.encode())
    assert 200 == get(link_on(run))[0]


@contextmanager
def request_and_server(run: PageRun) -> Iterator[None]:
    """A request, and the `kasmon web` that has to run; at the end another machine opens the request."""
    kasmon, tls_port = run.kasmon, find_free_port()
    files = CertificateFiles(kasmon.home)
    kasmon.new("fix-auth", "ask git push")
    run.filled |= {
        "REQUEST": kasmon.request()["id"],
        "8000": str(find_free_port()),
        "0.0.0.0": f"127.0.0.1:{tls_port}",
        "kasmon.example.org:8443": f"{NAME}:{tls_port}",
        "chain.pem": files.certificate,
        "key.pem": files.key,
    }
    run.serve("kasmon web", BEGIN)
    yield
    link = kasmon("web", "links", "create", run.filled["REQUEST"]).out.strip()
    assert link.startswith(f"https://{NAME}:{tls_port}/r/")
    status, page = get(link, context=ssl.create_default_context(cafile=files.certificate))
    assert (200, True) == (status, "Allow once" in page)


def open_link(run: PageRun, line: str) -> None:
    """Create a link and open it; from now on, ID is its id."""
    link = succeed(run, line).out.strip()
    assert 200 == get(link)[0]
    run.filled |= {"ID": link.rpartition("/")[2][:12], "LINK": link}


def revoke(run: PageRun, line: str) -> None:
    assert "revoked" in succeed(run, line).out
    assert 200 != get(run.filled["LINK"])[0]


def serve_again(run: PageRun, line: str) -> None:
    """End the `kasmon web` that runs, and start this one."""
    run.interrupt()
    run.serve(line, BEGIN)


@contextmanager
def way_to_a_box(run: PageRun) -> Iterator[None]:
    """A machine with kasmon behind ssh; as both are one machine, the forwarded port here is not the one there."""
    with box_with_kasmon(run) as box:
        here, there = find_free_port(), find_free_port()
        run.filled |= {
            "8000:127.0.0.1:8000": f"{here}:127.0.0.1:{there}",
            "--port 8000": f"--port {there}",
            "ssh -t": f"{' '.join(box.ssh)} -t",
            "HOST": "box",
            "HERE": str(here),
        }
        yield


def open_tunnel(run: PageRun, line: str) -> None:
    run.serve(line, BEGIN)
    assert 200 == get(link_on(run), int(run.filled["HERE"]))[0]


STORIES = {
    "docs/web.md": PageStory(fixture=way_to_a_box, acts={"kasmon web": open_dashboard, TUNNEL: open_tunnel}),
    "docs/phone.md": PageStory(
        left_out={"tailscale serve --bg 8000": "it needs an account of Tailscale"},
        fixture=request_and_server,
        acts={
            "kasmon web links create REQUEST": open_link,
            "kasmon web links login": open_link,
            "kasmon web links revoke ID": revoke,
            SERVES: serve_again,
            SERVES_OTHERS: serve_again,
        },
    ),
}
