"""`kasmon doctor` asks the other machines that sessions run on: whether they answer, and which tmux they have."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.cli.doctor.checks import judge_tmux, machines
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.config import Config
from kasmon.supervisor.sessions.create import NewSession, prepare
from tests.support.supervisor.env import Env

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
if [ "$1" = gone ]; then echo 'ssh: connect to host gone port 22: Connection refused' >&2; exit 255; fi
PATH={folder}/$1
exec {sh}
"""
"""A machine is a folder of programs."""


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Env]:
    env = Env()
    for name, said in (("old", "tmux 3.3a"), ("new", "tmux 3.5a"), ("bare", "")):
        (tmp_path / name).mkdir()
        if said:
            (tmp_path / name / "tmux").write_text(f"#!{shutil.which('sh')}\necho '{said}'\n")
            (tmp_path / name / "tmux").chmod(0o755)
    (tmp_path / "ssh").write_text(SSH.format(folder=tmp_path, sh=shutil.which("sh")))
    (tmp_path / "ssh").chmod(0o755)
    env.paths.config.mkdir(mode=0o700, parents=True, exist_ok=True)
    (env.paths.config / "config.toml").write_text(f'[remote]\nssh = ["{tmp_path / "ssh"}"]\n')
    yield env
    env.close()


def looked(env: Env, *hosts: str) -> list[DoctorCheck]:
    """What is said where sessions ran on *hosts*."""
    for host in hosts:
        prepare(env.paths, Config(), NewSession(name=f"on-{host}", agent=f"shell@{host}"), time.time())
    return list(machines(env.paths, judge_tmux))


def test_each_machine_that_was_used_has_a_line_with_its_tmux(env: Env) -> None:
    old, new = looked(env, "old", "new")

    assert ("machine-old", "warn") == (old.id, old.level)
    assert old.text.startswith("'old' responds, with tmux 3.3a: it crashes when")
    assert ("machine-new", "ok", "'new' responds, with tmux 3.5a", "") == (new.id, new.level, new.text, new.fix)


def test_a_machine_without_tmux_and_one_that_does_not_answer_have_a_next_step(env: Env) -> None:
    bare, gone = looked(env, "bare", "gone")

    assert ("fail", "'bare' responds, but has no tmux: no agent can be started there") == (bare.level, bare.text)
    assert "Install tmux" in bare.fix
    assert "warn" == gone.level
    assert "'gone' does not respond: ssh: connect to host gone port 22: Connection refused" == gone.text
    assert "Run `ssh gone` to see" in gone.fix


def test_without_used_machines_none_is_probed(env: Env) -> None:
    prepare(env.paths, Config(), NewSession(name="here", agent="shell", workdir="/"), time.time())

    assert [] == list(machines(env.paths, judge_tmux))
