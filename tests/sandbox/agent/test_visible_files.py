"""Which variables that name files an agent inside keeps: those whose file it sees."""

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Mount, SandboxPolicy
from kasmon.sandbox.agent.launch import filter_variables

POLICY = SandboxPolicy(
    session=SessionId("abcdefgh"), mounts=(Mount(source="/srv/keys"), Mount(source="/a", target="/b"))
)


@pytest.mark.parametrize("path", ["/usr/lib/ca.pem", "/work", "/work/ca.pem", "/srv/keys/ca.pem", "/b/ca.pem"])
def test_a_file_in_a_visible_folder_is_kept(path: str) -> None:
    assert path == filter_variables(POLICY, "/work", {"SSL_CERT_FILE": path})["SSL_CERT_FILE"]


@pytest.mark.parametrize("path", ["/workshop/ca.pem", "/srv/keys-old/ca.pem", "/a/ca.pem", "/home/me/ca.pem", "ca.pem"])
def test_a_path_that_only_starts_like_a_visible_one_is_not(path: str) -> None:
    assert "SSL_CERT_FILE" not in filter_variables(POLICY, "/work", {"SSL_CERT_FILE": path})


def test_a_text_without_a_file_name_is_kept() -> None:
    assert "x" == filter_variables(POLICY, "/work", {"LANG": "x"})["LANG"]
