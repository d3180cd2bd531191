"""Links between the documents lead somewhere, and every page can be reached."""

from pathlib import Path

import pytest
from tests.docs.pages import DOCS, anchors, links, name_of, pages


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_contents_lead_to_every_page() -> None:
    reached = {DOCS / "README.md"}
    for index in (DOCS / "README.md", DOCS / "api" / "README.md"):
        reached |= {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {name_of(page) for page in DOCS.rglob("*.md") if page not in reached} == set()
