"""The documents: links and anchors lead somewhere, reference tables are current, the README stays short."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from kasmon.config.parser import parse
from kasmon.tui.keymap import chosen
from tests.support.reference_pages import MARKED, TABLES, written

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
FENCED = re.compile(r"^```[\s\S]*?^```$|^ {4}.*$|`[^`\n]*`", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TOPICS = (
    *(
        "acp",
        "getting-started",
        "cli",
        "cluster",
        "keys",
        "agents",
        "plans",
        "sandboxes",
        "worktrees",
        "fleet",
        "idle",
        "remote",
        "web",
        "phone",
        "mcp",
        "notifications",
    ),
    *(
        "python-api",
        "configuration",
        "trust",
        "performance",
        "promises",
        "comparison",
        "troubleshooting",
        "review",
        "limits",
    ),
)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(text: str) -> list[str]:
    """The links of *text* but those in code, which are examples."""
    return LINK.findall(FENCED.sub("", text))


@cache
def anchors(page: Path) -> set[str]:
    return slugs(page.read_text("utf-8"))


def slugs(text: str) -> set[str]:
    """The anchors of the headings in *text*, as GitHub makes them: `-1` is added to the second of the same name."""
    found: dict[str, int] = {}
    body = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    made = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", body, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        made.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return made


def broken(page: Path, text: str) -> list[str]:
    """The links in *text*, the text of *page*, that lead nowhere in this repository; other sites are not asked."""
    wrong = []
    for link in links(text):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        there = anchors(target) if path and target.suffix == ".md" and target.exists() else slugs(text)
        if not target.is_relative_to(ROOT) or not target.exists() or (anchor and anchor not in there):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_and_anchor_of_a_page_exists(page: Path) -> None:
    assert [] == broken(page, page.read_text("utf-8"))


@pytest.mark.parametrize(
    "link", ["no-such.md", "../docs/no-such.md", "#no-such", "keys.md#no-such", "../../outside.md", "no-such.svg"]
)
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    right = "[that](keys.md#in-the-list), [here](#probe), `[code](no-such.md)`"
    text = f"# Probe\n\n    an example\n\nSee [this]({link}), {right}.\n"

    assert [link] == broken(ROOT / "docs/keys.md", text)


def test_the_readme_has_at_most_1000_words() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1000


def test_the_readme_links_to_every_page() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text("utf-8")))

    assert {f"docs/{topic}.md" for topic in TOPICS} | {"docs/decisions/", "examples/"} <= linked
    assert {f"{topic}.md" for topic in TOPICS} == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {Path(link).name for page in PAGES for link in links(page.read_text("utf-8")) if link.endswith(".svg")}

    assert {path.name for path in (ROOT / "screenshots").iterdir()} == shown


@pytest.mark.parametrize("page", [page for page in PAGES if MARKED.search(page.read_text("utf-8"))], ids=name)
def test_the_reference_tables_are_fresh(page: Path) -> None:
    """`make pages` writes them."""
    text = page.read_text("utf-8")

    assert text == written(text)


def test_each_reference_table_is_on_one_page() -> None:
    marked = [found[1] for page in PAGES for found in MARKED.findall(page.read_text("utf-8"))]

    assert sorted(TABLES) == sorted(marked)


def test_every_file_that_a_page_names_by_its_whole_path_exists() -> None:
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    path = re.compile(r"`((?:kasmon|tests|docs|examples)/[a-z0-9_/.-]+)`")
    named = {named for page in pages for named in path.findall(page.read_text("utf-8"))}

    assert 40 < len(named)
    assert [] == sorted(name for name in named if not (ROOT / name).exists())


def test_decisions_are_numbered_without_a_gap_and_listed() -> None:
    folder = ROOT / "docs/decisions"
    files = sorted(path.name for path in folder.iterdir() if path.name != "README.md")

    assert [f"{number:03d}" for number in range(1, len(files) + 1)] == [name[:3] for name in files]
    listed = [link for link in links((folder / "README.md").read_text("utf-8")) if not link.startswith("..")]
    assert files == listed
    assert [] == [name for name in files if not (folder / name).read_text("utf-8").startswith(f"# {name[:3]}: ")]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs"], ids=name)
def test_every_config_on_a_page_is_accepted(page: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)

    for block in blocks:
        chosen(parse(block, page.name).keys, page.name, block)
