"""The codex backend keeps every promise of a backend: the scripted agent, behind codex's protocol, in a process."""

from pathlib import Path

import msgspec
import pytest

from kasmon.backends import load, names
from kasmon.backends.codex import CodexBackend, backend
from kasmon.model.commands import Launch
from tests.support.agents.backend_contract import (
    AskingContract,
    BackendContract,
    InterruptingContract,
    ResumingContract,
    StreamingContract,
)
from tests.support.codex.odd_codex import FAKE, program


class TestCodex(BackendContract, StreamingContract, AskingContract, InterruptingContract, ResumingContract):
    backend = backend

    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path) -> None:
        self.workdir = tmp_path
        self.program = program(tmp_path, FAKE)

    def launch(self, generation: int = 1, resume: str | None = None) -> Launch:
        launch = super().launch(generation, resume)
        return msgspec.structs.replace(launch, argv=(self.program,), workdir=str(self.workdir))


def test_the_backend_is_found_by_its_name() -> None:
    assert "codex" in names()
    assert isinstance(load("codex"), CodexBackend)
