"""A git repository of a test's own."""

import os
import subprocess
from pathlib import Path


class Repo:
    """A repository in *folder*, on the branch `main`, with one commit unless told otherwise."""

    def __init__(self, folder: Path, *, commits: int = 1) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")
        for number in range(commits):
            self.commit(f"file{number}.txt")

    def git(self, *arguments: str, at: Path | None = None) -> str:
        """What git says, at *at* or in the repository itself. Nothing of the user's config is heard."""
        own = {
            "HOME": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        return subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments],
            cwd=at or self.folder,
            env={"PATH": os.environ["PATH"]} | own,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def commit(self, file: str, text: str = "one\n", at: Path | None = None) -> str:
        """Write and commit *file*; the commit."""
        path = (at or self.folder) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.git("add", "--", file, at=at)
        self.git("commit", "--quiet", "-m", f"add {file}", at=at)
        return self.git("rev-parse", "HEAD", at=at)

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")
