"""What in a terminal's text is a link, and what somebody must know before it is opened."""

import pytest

from kasmon.model.transcript.markdown.links import LONGEST, is_link, links, warnings

FOUND = {
    "see https://example.org/a?b=c#d.": ["https://example.org/a?b=c#d"],
    "(http://example.org/x_(y)), then": ["http://example.org/x_(y)"],
    "HTTPS://EXAMPLE.ORG/": ["HTTPS://EXAMPLE.ORG/"],
    "https://a.example https://b.example!": ["https://a.example", "https://b.example"],
    "│https://a.example/x│": ["https://a.example/x"],
    "'https://a.example' <https://b.example>": ["https://a.example", "https://b.example"],
    "https://例え.example/道": ["https://例え.example/道"],
}
NONE = [
    "file:///etc/passwd",
    "javascript:alert(1)",
    "javascript://https%3a//x",
    "data:text/html,x",
    "ssh://host",
    "vscode://file/x",
    "https://",
    "http:///path",
    "https://[broken",
    "https:example.org",
    "https://x.example/" + "a" * LONGEST,
]


@pytest.mark.parametrize(("text", "addresses"), FOUND.items(), ids=FOUND)
def test_only_http_and_https_are_links_without_the_sentences_punctuation(text: str, addresses: list[str]) -> None:
    assert addresses == [link.address for link in links(text)]
    assert addresses == [text[link.start : link.end] for link in links(text)]


@pytest.mark.parametrize("text", NONE)
def test_nothing_else_is_ever_a_link(text: str) -> None:
    assert not links(text)
    assert not is_link(text)


@pytest.mark.parametrize("address", ["https://x.example/\x1b]52", "https://x.example/a b", "https://x.example/\nb"])
def test_an_address_with_controls_or_blanks_is_no_link(address: str) -> None:
    assert not is_link(address)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://аррӏе.example/", "xn--80ak6aa92e.example"),
        ("https://xn--80ak6aa92e.example/", "punycode"),
        ("https://github.com@evil.example/x", "the link goes to evil.example"),
        ("https://x.example/\u202egpj", "hidden characters"),
        ("http://x.example/", "not encrypted"),
    ],
)
def test_anything_unusual_about_an_address_is_reported(address: str, words: str) -> None:
    assert any(words in said for said in warnings(address))


def test_an_ordinary_address_has_no_warning() -> None:
    assert [] == warnings("https://example.org/a?b=c")


def test_a_row_made_to_take_long_is_quick() -> None:
    assert [] == links("https://" * 20_000)
    assert [] == links("https://x.example/" + ")" * 200_000)
    assert 1 == len(links("https://x.example/" + ")" * 900))
