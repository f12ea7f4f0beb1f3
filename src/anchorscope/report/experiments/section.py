"""One experiment's part of the page: a few sentences, tables, figures.

Every experiment has a `SectionSpec` in a module of this folder, and its entry in `catalogue.py` names it. Nothing else
has to know of it: the page and the figures are put together from the catalogue, in the order of the entries' places.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Self

import polars as pl

from anchorscope.catalogue import EXPERIMENTS
from anchorscope.report.charts.display import Display
from anchorscope.report.experiments.experiment_rows import absent_notes, datasets_in
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.wording import Table


@dataclass(frozen=True)
class SectionFigure:
    """A figure on the page."""

    name: str
    """Of its files in figures/."""
    alt: str
    """What it shows, for those who cannot see it."""
    caption: str


@dataclass(frozen=True)
class Section:
    """One subsection, as both templates draw it."""

    slug: str
    """Its address within the page."""
    title: str
    text: tuple[str, ...]
    """What is asked, how to read it, what can go wrong; one paragraph each."""
    tables: tuple[tuple[str, Table], ...] = ()
    """Each with the line that stands above it."""
    figures: tuple[SectionFigure, ...] = ()


@dataclass(frozen=True)
class ExperimentChart(Display):
    """The figure of an experiment: a subclass says which rows it draws, what stands below them, and draws them."""

    model: str
    """Title of the chart."""
    n_layers: int
    """Length of an axis over the layers."""
    datasets: tuple[str, ...]
    """Those that have rows; one or more rows of panels each."""
    reference_layers: Mapping[str, tuple[int, ...]]
    """Per dataset, l* of every fold."""

    alt: ClassVar[str]
    """What it shows, for those who cannot see it."""
    caption: ClassVar[str]

    @classmethod
    @abstractmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """What is drawn of a run; no rows where the experiment was not made."""

    @classmethod
    @abstractmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """The lines of small print below the panels."""

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether there is something to draw."""
        return bool(cls.rows(findings).height)

    @classmethod
    def from_findings(cls, findings: Findings) -> Self:
        """The figure of a run."""
        data = cls.rows(findings)
        notes = (*cls.explained(findings), *absent_notes(findings, data))
        layers = {name: tuple(found) for name, found in findings.reference_layers.items()}
        return cls(data, notes, findings.model, findings.n_layers, datasets_in(findings, data), layers)


Text = tuple[str, ...]
TableMaker = Callable[[Findings, pl.DataFrame], Table]


@dataclass(frozen=True)
class SectionSpec:
    """What an experiment puts on the page, whatever the run."""

    slug: str
    title: str
    rows: Callable[[Findings], pl.DataFrame]
    """The experiment's rows of a run. There is no section where there are none and no figure was made."""
    text: Text | Callable[[Findings, pl.DataFrame], Text]
    """Paragraphs; a function where they depend on what was made."""
    charts: tuple[type[ExperimentChart], ...] = ()
    tables: tuple[tuple[str, TableMaker], ...] = ()
    """Each with the line above it; made from the run and the experiment's rows, and left out where it has no rows."""

    def section(self, findings: Findings) -> Section | None:
        """The section of a run; None where the experiment was not made."""
        rows = self.rows(findings)
        figures = tuple(SectionFigure(one.name, one.alt, one.caption) for one in self.charts if one.was_made(findings))
        if not rows.height and not figures:
            return None
        text = self.text if isinstance(self.text, tuple) else self.text(findings, rows)
        return Section(self.slug, self.title, text, self._tables(findings, rows), figures)

    def _tables(self, findings: Findings, rows: pl.DataFrame) -> tuple[tuple[str, Table], ...]:
        return filled(*((title, make(findings, rows)) for title, make in self.tables))


def filled(*tables: tuple[str, Table]) -> tuple[tuple[str, Table], ...]:
    """The tables that have rows."""
    return tuple((title, table) for title, table in tables if table.rows)


def section_specs() -> list[SectionSpec]:
    """The sections of all experiments of the catalogue, in the order of the page; one that is shared comes once."""
    entries = sorted(EXPERIMENTS.values(), key=lambda entry: entry.place)
    homes = dict.fromkeys(entry.section for entry in entries if entry.section is not None)
    return [_loaded(home) for home in homes]


def experiment_charts() -> list[type[ExperimentChart]]:
    """The figures of all sections."""
    return [chart for spec in section_specs() for chart in spec.charts]


def experiment_figures(findings: Findings) -> list[Display]:
    """The figures of the experiments that were made."""
    return [chart.from_findings(findings) for chart in experiment_charts() if chart.was_made(findings)]


def experiment_sections(findings: Findings) -> list[Section]:
    """The sections of the experiments that were made, and what could not be."""
    made = [spec.section(findings) for spec in section_specs()]
    return [section for section in (*made, unavailable_section(findings)) if section is not None]


def unavailable_section(findings: Findings) -> Section | None:
    """What was asked for and cannot be done here."""
    told = findings.unavailable.select(pl.col("dataset", "experiment", "reason").fill_null("–"))
    rows = tuple((display_name(dataset), experiment, reason) for dataset, experiment, reason in told.iter_rows())
    if not rows:
        return None
    text = ("What was asked for and cannot be said on this model and these questions, each with its reason.",)
    table = Table(("dataset", "experiment", "reason"), rows, 3)
    return Section("unavailable", "Not available", text, filled(("", table)))


def _loaded(home: str) -> SectionSpec:
    module, _, name = home.partition(":")
    spec = getattr(import_module(module), name)
    assert isinstance(spec, SectionSpec), f"{home} is no section"
    return spec
