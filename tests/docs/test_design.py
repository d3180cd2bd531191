"""The pages for developers name only files that exist."""

import re
from pathlib import Path

import pytest
from tests.docs.pages import FOR_DEVELOPERS, ROOT, name_of

PAGES = [ROOT / "CONTRIBUTING.md", *sorted(FOR_DEVELOPERS)]
FOLDERS = ("src", "tests", "bench", "docs", "deploy", "examples", "scripts")
_FILE = re.compile(r"(?<![\w/.<>-])((?:[\w-]+/)*[\w-]+\.(?:py|md|yml))\b")


def existing() -> set[str]:
    """Every file of the repository, by each end of its path: `engine/node.py` and `node.py` too."""
    found = set()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()):
        parts = path.relative_to(ROOT).parts
        found |= {"/".join(parts[start:]) for start in range(len(parts))}
    return found | {path.name for path in ROOT.iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_for_developers_names_only_files_that_exist(page: Path) -> None:
    known = existing()
    text = re.sub(r"\]\([^)]*\)", "]", page.read_text())  # where links lead is checked elsewhere
    assert sorted({name for name in _FILE.findall(text) if name not in known}) == []
