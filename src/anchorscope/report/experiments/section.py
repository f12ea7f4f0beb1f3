"""A part of the page about one experiment: a few sentences, tables, figures. Both templates draw the same parts."""

from dataclasses import dataclass

from anchorscope.report.run_tables import Table


@dataclass(frozen=True)
class Plate:
    """A figure on the page."""

    name: str
    """Of its files in figures/."""
    alt: str
    """What it shows, for those who cannot see it."""
    caption: str


@dataclass(frozen=True)
class Section:
    """One subsection."""

    slug: str
    """Its address within the page."""
    title: str
    text: tuple[str, ...]
    """What is asked, how to read it, what can go wrong; one paragraph each."""
    tables: tuple[tuple[str, Table], ...] = ()
    """Each with the line that stands above it."""
    plates: tuple[Plate, ...] = ()


def filled(*tables: tuple[str, Table]) -> tuple[tuple[str, Table], ...]:
    """The tables that have rows."""
    return tuple((title, table) for title, table in tables if table.rows)
