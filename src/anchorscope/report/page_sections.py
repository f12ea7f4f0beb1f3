"""A page made of sections: text, figures, tables and answers, one after the other, as HTML and as plain text.

The calibration's page and the detectors' are made of nothing else; the further experiments of a run's page are such
sections too. What a section holds is data; how it looks is said once, in templates/parts.*.j2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from anchorscope.report.answer_card import AnswerCard, card_html
from anchorscope.report.page_writer import FRAME_SCRIPTS, write_page
from anchorscope.report.verdicts import Verdict
from anchorscope.report.wording import Table

Tables = tuple[tuple[str, Table], ...]
"""Each with the line that stands above it, which may be empty."""


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
    """What came out, in one sentence; among others, a section with one is folded behind it."""
    verdict: Verdict | None = None
    docs: str = ""
    """The page of the docs that says how it is computed."""
    asked: Sequence[Any] = ()
    """Questions, each with `question`, `answer`, `sure`, `why` and `badge`, its verdict or nothing."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Name → what there is to say of it."""
    more: tuple["Section", ...] = ()
    """Folded parts at its end."""
    live: str = ""
    """The id of what a script draws in place of the tables."""


def filled(*tables: tuple[str, Table]) -> Tables:
    """The tables that have rows."""
    return tuple((title, table) for title, table in tables if table.rows)


@dataclass(frozen=True)
class SectionsPage:
    """A whole page."""

    kicker: str
    title: str
    lead: Sequence[str]
    """Sentences that come first."""
    sections: Sequence[Section]
    command: str = ""
    """What repeats it."""
    files: Mapping[str, str] = field(default_factory=dict)
    card: AnswerCard | None = None
    """Stands above the sentences."""


def write_sections_page(
    page: SectionsPage,
    out: Path,
    name: str,
    scripts: Sequence[str] = FRAME_SCRIPTS,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write NAME.html and NAME.md; the figures must already lie in out/figures."""
    content = {"page": page, "card": Markup(card_html(page.card)) if page.card else ""}
    write_page("sections.html", content, out, scripts=scripts, data=data)
    write_page("sections.md", content, out)
    for kind in ("html", "md"):
        (out / f"sections.{kind}").rename(out / f"{name}.{kind}")
