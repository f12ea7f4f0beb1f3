"""A verdict is one of four words, and the same four in the documentation, the page and the description of the API."""

import json
import re
from pathlib import Path

import pytest

from anchorscope.cli.detect import _describe_chance
from anchorscope.detectors.verdict import VERDICTS

ROOT = Path(__file__).parents[2]
OLD_WORDS = re.compile(
    r"\babstains?\b|not sure enough|probably not true", re.IGNORECASE
)
"""What the same verdicts were called before."""


def words_of_table(page: str, heading: str) -> list[str]:
    """The words in code of the first column of the table below a heading."""
    rows = page.split(heading, 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [word for row in rows for word in re.findall(r"^\| `([^`]+)` \|", row)]


def test_the_table_of_the_docs_has_the_four_verdicts() -> None:
    page = (ROOT / "docs/scoring.md").read_text(encoding="utf-8")
    assert sorted(words_of_table(page, "| verdict | means |\n")) == sorted(VERDICTS)


def test_the_api_promises_the_four_verdicts() -> None:
    described = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
    fields = [
        schema["properties"]["verdict"]
        for schema in described["components"]["schemas"].values()
        if "verdict" in schema.get("properties", {})
    ]
    assert fields
    for field in fields:
        (words,) = (kind["enum"] for kind in field["anyOf"] if "enum" in kind)
        assert tuple(words) == VERDICTS


@pytest.mark.parametrize("folder", ["src", "docs", "examples"])
def test_no_page_uses_another_word(folder: str) -> None:
    kinds = {".py", ".js", ".html", ".md", ".json", ".ipynb"}
    pages = [path for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    found = {
        str(path.relative_to(ROOT)): OLD_WORDS.findall(path.read_text(encoding="utf-8"))
        for path in pages
    }
    assert not {path: words for path, words in found.items() if words}


def test_no_probability_is_told_as_certain() -> None:
    told = [_describe_chance(one) for one in (0.0, 3e-6, 0.012, 0.62, 0.994, 1.0)]
    shown = ["<1% true", "<1% true", "1% true", "62% true", ">99% true", ">99% true"]
    assert told == shown
    page = ROOT / "src/anchorscope/serve/page"
    for script in ("page_verdict.js", "page_words.js"):
        text = (page / script).read_text(encoding="utf-8")
        assert not re.search(r"percent\((probability|clean|after)\)", text)
