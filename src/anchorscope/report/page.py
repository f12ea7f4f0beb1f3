"""A page made of sections, written as one HTML file that opens from disk without a network, and as plain text.

A run, a comparison and detectors have a `SectionsPage`. A section holds data; how it looks is defined
once, in templates/parts.*.j2. `anchorscope view` has a table in the same frame.

Questions, answers and names are other people's text: the template engine escapes every value in HTML, and takes its
markup away in Markdown. Figures are embedded as SVG images, data as JSON that holds no character that could end it. The
page may run exactly one script, its own small scripts joined, whose hash its content policy names: anything smuggled in
has another hash and stays dead, and nothing is loaded.
"""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from anchorscope.json_text import from_json, to_json
from anchorscope.report.verdicts import Verdict
from anchorscope.report.wording import Table

if TYPE_CHECKING:
    from anchorscope.report.answer_card import AnswerCard

SCRIPTS = (
    "dom",
    "theme",
    "contents",
    "scrolling",
    "figure_values",
    "hash_state",
    "controls",
    "items",
)
"""Light and dark, the bar of contents, wide tables by keyboard, the numbers of figures; then a run's table of items."""

FIGURES = "figure-values"
"""The data of a page that holds the numbers of its figures, by name."""
_CARRIED = re.compile(r"<dc:description>(.*?)</dc:description>", re.DOTALL)
_DANGEROUS = str.maketrans(
    {letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}
)

# Marks that mean something anywhere in a line, and those that do only where a line begins. "](" makes a link.
_MARKS = re.compile(r"[\\`*_|~$]|(?<=\])\(|^[-+#=\[!]")
_SPACES = re.compile(
    r"[^\S\u00a0\u202f]+"
)  # every blank and line break but the two that keep a number in one piece


def write_json(path: Path, content: Any) -> None:
    """What programs read of a page, as JSON."""
    path.write_text(to_json(content, indent=2, ascii=False) + "\n", encoding="utf-8")


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


@dataclass(frozen=True)
class Section:
    """One part of a page."""

    slug: str
    title: str
    text: tuple[str, ...] = ()
    tables: Tables = ()
    figures: tuple[SectionFigure, ...] = ()
    answer: str = ""
    """What came out, in one sentence; a folded part with one shows it."""
    verdict: Verdict | None = None
    docs: str = ""
    """The page of the docs that says how it is computed."""
    facts: Mapping[str, str] = field(default_factory=dict)
    more: tuple["Section", ...] = ()
    """Folded parts at its end."""
    live: str = ""
    """The id of what a script draws in place of the tables."""
    parts: tuple["Section", ...] = ()
    """Open parts, after its own content."""
    code: str = ""


def filled(*tables: tuple[str, Table]) -> Tables:
    """The tables that have rows."""
    return tuple((title, table) for title, table in tables if table.rows)


@dataclass(frozen=True)
class SectionsPage:
    """A whole page."""

    kicker: str
    title: str
    card: "AnswerCard"
    """The answer, above everything else."""
    lead: Sequence[str]
    sections: Sequence[Section]
    figures: tuple[SectionFigure, ...] = ()
    """Charts of the first screen, beside the card's picture."""
    short_title: str = ""


def write_sections_page(
    page: SectionsPage, out: Path, name: str, data: Mapping[str, Any] | None = None
) -> None:
    """Write NAME.html with figures, scripts and data inside, and NAME.md; the figures must already be in out/figures.

    The scripts find the data by their names, as `pageData(NAME)`.
    """
    values = {}

    def figure(name: str) -> str:
        address, values[name] = _embedded(out / "figures" / f"{name}.svg")
        return address

    def page_data() -> dict[str, Markup]:
        """Written last, when it is known which figures the page shows."""
        return {
            name: embedded_json(value)
            for name, value in {**(data or {}), FIGURES: values}.items()
        }

    frame = page_frame(SCRIPTS)
    for kind in ("html", "md"):
        template = _environment(kind == "html").get_template(f"sections.{kind}.j2")
        text = template.render(
            page=page, card=page.card, **frame, figure=figure, data=page_data
        )
        (out / f"{name}.{kind}").write_text(text, encoding="utf-8")


def page_frame(scripts: Sequence[str]) -> dict[str, str]:
    """What frame.html.j2 needs for a page with these scripts."""
    script = joined_script(scripts)
    styles = [_text(f"{name}.css") for name in ("chart", "items", "print")]
    return {
        "policy": content_policy(script),
        "script": Markup(script),
        "styles": Markup("\n".join(styles)),
    }


def fragment(name: str, content: Mapping[str, Any]) -> str:
    """What one template makes of its content, for a notebook or the list of runs; every value is escaped."""
    return _environment(True).get_template(f"{name}.html.j2").render(content)


def joined_script(scripts: Sequence[str]) -> str:
    """Scripts as one, closed against everything else on the page."""
    parts = "\n".join(_text(f"{name}.js") for name in scripts)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


def content_policy(script: str) -> str:
    """What the page may do: show embedded images, use its own styles, run this one script. Nothing is loaded."""
    nothing = [f"{what} 'none'" for what in ("default-src", "base-uri", "form-action")]
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode(
        "ascii"
    )
    return "; ".join(
        [
            *nothing,
            "img-src data:",
            "style-src 'unsafe-inline'",
            f"script-src 'sha256-{digest}'",
        ]
    )


def embedded_json(value: Any) -> Markup:
    """JSON that can stand in a script element: no character in it can end the element or begin a comment."""
    text = to_json(value, ascii=False, compact=True)
    return Markup(text.translate(_DANGEROUS))


@cache
def _environment(html: bool) -> Environment:
    """For HTML every value is escaped, for Markdown it loses its markup."""
    return Environment(
        loader=PackageLoader("anchorscope.report"),
        autoescape=html,
        finalize=None if html else _plain_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _embedded(path: Path) -> tuple[str, Any]:
    """The figure as a data address, and the numbers of its lines, which it carries.

    As an image, nothing inside it can run or collide with the page.
    """
    if not path.is_file():
        return "", None
    picture = path.read_text(encoding="utf-8")
    numbers = _CARRIED.search(picture)
    address = base64.b64encode(_CARRIED.sub("", picture).encode("utf-8")).decode(
        "ascii"
    )
    return f"data:image/svg+xml;base64,{address}", from_json(
        html.unescape(numbers.group(1))
    ) if numbers else None


def _plain_text(value: object) -> object:
    """Text in Markdown: one line, its markup switched off. Parts of the template itself are marked as safe."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    line = _SPACES.sub(" ", value).strip()
    return html.escape(_MARKS.sub(lambda mark: "\\" + mark.group(), line), quote=False)


def _text(name: str) -> str:
    return (files("anchorscope.report") / "scripts" / name).read_text(encoding="utf-8")
