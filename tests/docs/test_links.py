"""Links lead somewhere, every page can be found, and nothing is fetched from elsewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
)

_FENCED = re.compile(r"^```.*?^```$|<!--.*?-->|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
_CODE_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def links_of(text: str) -> Iterator[str]:
    """Targets of links, leaving out what only looks like one because it is code."""
    for link in _LINK.finditer(_FENCED.sub("code", text)):
        yield link["target"]


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as code hosts and our site make them."""
    titles = (found["title"] for found in _HEADING.finditer(_CODE_FENCE.sub("", text)))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in plain}


def dead_links(page: Path) -> list[str]:
    dead = []
    text = page.read_text()
    for link in links_of(text):
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (page.parent / unquote(target)).resolve() if target else page
        there = path.exists() and path.is_relative_to(ROOT)
        if not there or (anchor and anchor not in anchors_of(path.read_text())):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# One, and `two`\n\n[a](#one-and-two) [b](#three) [c](gone.md) [d](page.md#one) "
        "[e](https://example.com/gone) `[f](code.md)`\n\n```text\n# four\n[g](code.md)\n```\n"
    )
    assert dead_links(page) == ["#three", "gone.md", "page.md#one"]


# --- the site -------------------------------------------------------------------------------


class _Site(yaml.SafeLoader):
    """Reads mkdocs.yml without calling the functions that it names."""


_Site.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def site() -> dict[str, Any]:
    loaded = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Site)  # noqa: S506 - it is safe
    assert isinstance(loaded, dict)
    return loaded


def pages_in(nav: object) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for one in nav:
                yield from pages_in(one)
        case dict():
            for one in nav.values():
                yield from pages_in(one)


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    entries = set(pages_in(site()["nav"]))
    beside = {entry.removeprefix("project/") for entry in entries if entry.startswith("project/")}
    assert [entry for entry in beside if not (ROOT / entry).exists()] == []
    listed = {entry.removesuffix("*") for entry in entries if entry.endswith("/*")}
    ours = {entry for entry in entries if not entry.startswith("project/")} - {
        f"{folder}*" for folder in listed
    }
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert ours - there == set()
    assert {page for page in there - ours if not page.startswith(tuple(listed))} == set()


def test_the_site_and_its_pictures_fetch_nothing_from_elsewhere() -> None:
    assert site()["theme"]["font"] is False
    fetched = re.compile(r"(?:href|src|url)\s*[=(]\s*[\"']?https?:")
    for picture in DOCS.rglob("*.svg"):
        assert not fetched.search(picture.read_text()), picture
    for page in DOCS.rglob("*.md"):
        pictures = re.findall(r"!\[[^\]]*\]\((https?:[^)]+)\)", page.read_text())
        assert pictures == [], page
        assert "```mermaid" not in page.read_text(), page  # the theme would fetch a script for it
