"""docs/security.md names the limits that the code has."""

import importlib
import re

import pytest

from repo import DOCS

PAGE = DOCS / "security.md"
ROWS = re.findall(
    r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", PAGE.read_text(encoding="utf-8"), re.M
)


def said(value: int) -> set[str]:
    """The ways in which a page may say a number."""
    units = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
    return {f"{value:,}"} | {
        f"{value // size:,} {unit}"
        for unit, size in units.items()
        if value % size == 0 and value
    }


@pytest.mark.parametrize(("what", "limit", "name"), ROWS, ids=[row[2] for row in ROWS])
def test_the_limits_on_the_page_are_those_of_the_code(
    what: str, limit: str, name: str
) -> None:
    path, _, attribute = name.rpartition(".")
    holder = path.rpartition(".")[2]
    if holder.isupper():  # a field of a constant
        found = getattr(
            getattr(
                importlib.import_module(f"anchorscope.{path.rpartition('.')[0]}"),
                holder,
            ),
            attribute,
        )
    else:
        found = getattr(importlib.import_module(f"anchorscope.{path}"), attribute)
    number = re.match(r"[\d,]+(?: (?:kB|MB|GB|MiB|GiB)\b)?", limit)
    assert number is not None, f"{what}: {limit!r} begins with no number"
    assert number[0] in said(found), (
        f"{what}: the page says {limit}, the code {found:,}"
    )


def test_the_page_has_the_table_and_is_short() -> None:
    assert {row[2].split(".")[0] for row in ROWS} == {"answers", "datasets", "models"}
    assert sum(word != "|" for word in PAGE.read_text(encoding="utf-8").split()) <= 900
