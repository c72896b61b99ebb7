"""Where the values of credentials come from, and how what holds one is found."""

import base64
import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from kasmon.model.sandbox.policy import Credential
from kasmon.sandbox.microvm.boot import scrub
from kasmon.sandbox.shared.credentials import (
    SETTLED_NS,
    CredentialFindings,
    CredentialSearch,
    fault,
    forms,
    holders,
    resolve,
)
from tests.support.wait import until

SECRET = 's3cr/t "värde" 42'
HERE = {"PATH": os.environ["PATH"], "MINE": SECRET}


def test_a_value_comes_from_a_variable_a_file_or_a_command_and_has_its_aliases(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    looked = resolve(
        (
            Credential(name="A", variable="MINE", aliases=("A_TOO",)),
            Credential(name="B", file=str(tmp_path / "token")),
            Credential(name="C", command=(sys.executable, "-c", "import os; print(os.environ['MINE'])")),
        ),
        HERE | {"PYTHONIOENCODING": "utf-8"},
    )

    assert {"A": SECRET, "A_TOO": SECRET, "B": SECRET, "C": SECRET} == looked.values
    assert () == looked.missing


def test_only_what_is_named_is_looked_up_with_the_value_of_now() -> None:
    assert {} == resolve((), HERE).values

    one = Credential(name="A", variable="MINE")
    assert ["old", "new"] == [resolve((one,), {"MINE": value}).values["A"] for value in ("old", "new")]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"variable": "NOBODYS"}, "'NOBODYS' is not set here"),
        ({"file": "/nowhere/at/all"}, "No such file or directory"),
        ({"command": ("/nowhere/at/all",)}, "cannot be run"),
        ({"command": (sys.executable, "-c", "import sys; sys.exit('the value is hunter2')")}, "exit code 1"),
        ({"command": (sys.executable, "-c", "print()")}, "it is empty"),
        ({"command": (sys.executable, "-c", "print('a\\0b')")}, "NUL"),
        ({"file": "/dev/zero"}, "more than"),
        ({}, "exactly one"),
        ({"variable": "A", "file": "b"}, "exactly one"),
    ],
)
def test_a_missing_value_is_reported_without_the_output_of_its_failure(source: dict[str, object], why: str) -> None:
    looked = resolve((Credential(name="A", **source),), HERE)  # type: ignore[arg-type]

    assert {} == looked.values
    assert why in looked.missing[0]
    assert "hunter2" not in looked.missing[0]


def test_an_invalid_variable_name_is_a_fault() -> None:
    assert "'A-B'" in fault(Credential(name="A", variable="X", aliases=("A-B",)))
    assert "" == fault(Credential(name="A", variable="X"))


@pytest.mark.parametrize(
    "written",
    [
        SECRET.encode(),
        json.dumps({"token": SECRET}).encode(),
        quote(SECRET, safe="").encode(),
        base64.b64encode(SECRET.encode()),
        SECRET.encode().hex().encode(),
        SECRET.encode().hex().upper().encode(),
        SECRET.encode("utf-16-le"),
        SECRET.encode("utf-16-be"),
        SECRET[::-1].encode(),
        SECRET.encode()[::-1],
    ],
    ids=["plain", "json", "address", "base64", "hex", "HEX", "utf-16-le", "utf-16-be", "reversed", "reversed bytes"],
)
def test_a_value_is_found_in_each_encoding_in_which_it_is_written(written: bytes) -> None:
    looked = CredentialFindings({"A": SECRET}, ())

    assert ("A",) == holders(b"x" * 1000 + written + b"y", looked)
    assert () == holders(b"x" * 1000, looked)


def test_a_memory_image_is_cleared_of_a_value_in_all_these_encodings() -> None:
    image = bytearray(b"-".join(forms(SECRET)))

    assert len(forms(SECRET)) == scrub(image, CredentialFindings({"A": SECRET}, ()))
    assert () == holders(bytes(image), CredentialFindings({"A": SECRET}, ()))


def test_files_with_a_value_are_named_and_no_link_is_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "workspace"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (folder / "deep" / "config").write_text(f"token = {SECRET}")
    (folder / "clean").write_text("nothing")
    (folder / "away").symlink_to(outside)
    (folder / "link").symlink_to(outside / "secret")
    os.mkfifo(folder / "pipe")

    assert [("deep/config", "A")] == list(CredentialSearch().files_with(folder, CredentialFindings({"A": SECRET}, ())))


def test_a_file_that_got_a_value_later_is_found_for_any_times(tmp_path: Path) -> None:
    """One that has not changed is not read a second time: that would be all of a workspace at each checkpoint."""
    search, looked, file = CredentialSearch(), CredentialFindings({"A": SECRET}, ()), tmp_path / "file"
    file.write_text("x" * len(SECRET))
    until(lambda: time.time_ns() - file.stat().st_ctime_ns > SETTLED_NS)
    for _ in range(2):
        assert [] == list(search.files_with(tmp_path, looked))
    before = file.stat()

    file.write_text(SECRET)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    for _ in range(2):
        assert [("file", "A")] == list(search.files_with(tmp_path, looked))
    assert [("file", "B")] == list(search.files_with(tmp_path, CredentialFindings({"B": SECRET}, ())))


def test_another_value_is_searched_for_in_all_files(tmp_path: Path) -> None:
    search, file = CredentialSearch(), tmp_path / "file"
    file.write_text(SECRET)
    until(lambda: time.time_ns() - file.stat().st_ctime_ns > SETTLED_NS)

    assert [] == list(search.files_with(tmp_path, CredentialFindings({"A": "another-value"}, ())))
    assert [("file", "A")] == list(search.files_with(tmp_path, CredentialFindings({"A": SECRET}, ())))


def test_a_value_too_short_to_be_distinctive_is_not_searched_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("aaa")

    assert [] == list(CredentialSearch().files_with(tmp_path, CredentialFindings({"A": "a"}, ())))
    assert () == holders(b"aaa", CredentialFindings({"A": "a"}, ()))
