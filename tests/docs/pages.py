"""The documents as tests see them: pages, fenced blocks, headings, links and tables."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
ADDRESS = "http://127.0.0.1:4437"
"""Where the documents say that the server is."""

FOR_DEVELOPERS = {DOCS / "design.md", *(DOCS / "design").glob("*.md")}
"""Pages that also describe what is only planned."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


class Example(NamedTuple):
    """A block that is run, and what it prints if the page says so."""

    language: str
    code: str
    output: str | None
    line: int


def pages() -> list[Path]:
    """Every page for users, and those at the top of the repository that lead to them."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted(DOCS.rglob("*.md"))]


def for_users() -> list[Path]:
    """The pages that tell what the server does now."""
    return [page for page in sorted(DOCS.rglob("*.md")) if page not in FOR_DEVELOPERS]


def name_of(page: Path) -> str:
    """A page as a test names it."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text of a page without its blocks."""
    return _FENCE.sub("", page.read_text())


def examples(page: Path) -> list[Example]:
    """The bash and python blocks of a page; a text block right after one is its output."""
    text = page.read_text()
    found: list[Example] = []
    end = 0
    for fence in _FENCE.finditer(text):
        language, code = fence[1], fence[2]
        if language in ("bash", "python"):
            found.append(Example(language, code, None, text.count("\n", 0, fence.start()) + 1))
        elif language == "text" and found and end and not text[end : fence.start()].strip():
            found[-1] = found[-1]._replace(output=code)
        end = fence.end() if language in ("bash", "python") else 0
    return found


def headings(page: Path) -> list[str]:
    """The headings of a page."""
    return _HEADING.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """What a link may name on a page, as GitHub spells it."""
    return {_NOT_IN_SLUG.sub("", heading.lower()).replace(" ", "-") for heading in headings(page)}


def links(page: Path) -> list[str]:
    """Where the links of a page lead."""
    return _LINK.findall(prose(page))


def rows(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, cell by cell."""
    _, found, below = page.read_text().partition(f"{heading}\n")
    if not found:
        raise LookupError(f"{name_of(page)} has no heading {heading!r}")
    table: list[list[str]] = []
    for line in below.splitlines():
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif table:
            break
    return table[2:]


def codes(text: str) -> list[str]:
    """What is set as code in a text."""
    return re.findall(r"`([^`]+)`", text)
