"""Links between documents lead somewhere, and so do the sections and files that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(document: Path) -> set[str]:
    """What a heading is called in a link: lower case, without punctuation, with hyphens for blanks."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(document: Path) -> list[str]:
    dead = []
    for link in LINK.findall(document.read_text(encoding="utf-8")):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = (document.parent / file).resolve() if file else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_between_documents_resolve(document: Path) -> None:
    assert dead_links(document) == []


def test_dead_link_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# One thing\n[here](a.md#one-thing) [no](b.md) [no](#other) [web](https://example.org/x)\n")
    assert dead_links(document) == ["b.md", "#other"]


def test_every_document_can_be_reached_from_the_readme() -> None:
    linked = {(ROOT / link).resolve() for link in LINK.findall((ROOT / "README.md").read_text()) if "://" not in link}
    assert {document for document in DOCUMENTS if document.name != "README.md"} <= linked


def test_sections_that_the_format_refers_to_are_there() -> None:
    text = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {int(number) for number in re.findall(r"\bsection (\d+)", text)} <= set(numbers)


@pytest.mark.parametrize("page", sorted((ROOT / "man").glob("*.[157]")), ids=lambda page: page.name)
def test_documents_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"\b(?:docs|contrib)/[a-z.-]+\b", page.read_text().replace(r"\-", "-"))
    assert [name for name in named if not (ROOT / name).exists()] == []
