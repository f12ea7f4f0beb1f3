"""A page made of sections: text, charts, tables, readings and folded parts, as HTML and as plain text.

Every page is a `SectionsPage`: run, comparison, study, detectors, calibration. A section holds data; how it looks is
defined once, in templates/parts.*.j2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.report.answer_card import AnswerCard
from anchorscope.report.page_writer import FRAME_SCRIPTS, write_page
from anchorscope.report.verdicts import Verdict
from anchorscope.report.wording import Table

Tables = tuple[tuple[str, Table], ...]
"""Each with the line above it, which may be empty."""


@dataclass(frozen=True)
class SectionFigure:
    """A figure on the page."""

    name: str
    """Of its files in figures/."""
    alt: str
    """What it shows, for those who cannot see it."""
    caption: str
    narrow: bool = False
    """Whether it is not drawn over the whole width."""
    title: str = ""
    text: tuple[str, ...] = ()
    """Paragraphs below it."""


@dataclass(frozen=True)
class Section:
    """One part of a page."""

    slug: str
    """Its address within the page."""
    title: str
    text: tuple[str, ...] = ()
    """One paragraph each."""
    tables: Tables = ()
    figures: tuple[SectionFigure, ...] = ()
    answer: str = ""
    """What came out, in one sentence; a folded part with one shows it."""
    verdict: Verdict | None = None
    docs: str = ""
    """The page of the docs that says how it is computed."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Name → what there is to say of it."""
    more: tuple["Section", ...] = ()
    """Folded parts at its end."""
    live: str = ""
    """The id of what a script draws in place of the tables."""
    parts: tuple["Section", ...] = ()
    """Open parts, after its own content."""
    code: str = ""
    """Something to copy."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Name → address of another page in the same folder."""


def filled(*tables: tuple[str, Table]) -> Tables:
    """The tables that have rows."""
    return tuple((title, table) for title, table in tables if table.rows)


@dataclass(frozen=True)
class SectionsPage:
    """A whole page."""

    kicker: str
    title: str
    lead: Sequence[str]
    """Sentences that come first, after the card."""
    sections: Sequence[Section]
    command: str = ""
    """What repeats it."""
    files: Mapping[str, str] = field(default_factory=dict)
    card: AnswerCard | None = None
    """The answer, above everything else."""
    figures: tuple[SectionFigure, ...] = ()
    """Charts of the first screen, beside the card's picture."""
    short_title: str = ""
    """Of the browser's tab."""


def write_sections_page(
    page: SectionsPage,
    out: Path,
    name: str,
    scripts: Sequence[str] = FRAME_SCRIPTS,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write NAME.html and NAME.md; the figures must already be in out/figures."""
    content = {"page": page, "card": page.card}
    write_page("sections.html", content, out, name=f"{name}.html", scripts=scripts, data=data)
    write_page("sections.md", content, out, name=f"{name}.md")
