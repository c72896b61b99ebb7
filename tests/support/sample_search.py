"""What a search of all sessions finds in the pictures."""

from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.transcript.search.text import SearchHit, What
from kasmon.supervisor.search.search import SessionHits
from tests.support.sample_fleet import NOW, working

WORDS = "token"


def _hit(
    session: str, what: What, ago_s: float, line: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> SearchHit:
    start = line.lower().index(WORDS)
    return SearchHit(
        session=SessionId(session),
        at=NOW - ago_s,
        source="terminal" if what == "printed" else "transcript",
        position=0,
        what=what,
        line=line,
        start=start,
        end=start + len(WORDS),
        before=before,
        after=after,
    )


def finds() -> tuple[SessionHits, ...]:
    """Places in three sessions, the newest at the end of each."""
    signature = f"    def refresh(self, {WORDS}: str, expires_at: float, audience: Sequence[str] = (), *, force: bool):"
    return (
        SessionHits(
            working("fix-auth", agent="claude"),
            (
                _hit("fix-auth", "prompt", 7400, "Look why the auth token is refused after an hour."),
                _hit(
                    "fix-auth",
                    "diff",
                    4000,
                    signature,
                    ("@@ -12,7 +12,9 @@ class Session:", "     "),
                    ("+        if self.expires_at < now:", "+            raise Expired(self)"),
                ),
                _hit(
                    "fix-auth",
                    "said",
                    60,
                    "The token is refused because its clock is an hour ahead.",
                    ("I looked at `auth/session.py`.", ""),
                    ("", "So it compares in UTC now."),
                ),
            ),
        ),
        SessionHits(
            working("docs", mode=Mode.TMUX, agent="shell"),
            (
                _hit(
                    "docs",
                    "printed",
                    172_800,
                    "make: warning: TOKEN_URL is not documented",
                    ("$ make docs", "reading sources... [100%] api/auth"),
                    ("build succeeded, 1 warning.", "$"),
                ),
            ),
            more=True,
        ),
        SessionHits(
            working("parser", agent="codex"),
            tuple(_hit("parser", "output", 1300 - 100 * n, f"lex.py:{40 + n}: a token ends here") for n in range(12)),
        ),
    )
