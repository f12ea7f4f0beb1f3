"""One experiment's part of the page: its answer in a sentence with a verdict, and behind it text, figures and tables.

Every experiment has a `SectionSpec` in a module of this folder, and its entry in `catalogue.py` names it. Nothing else
has to know of it: the page and the figures are put together from the catalogue, in the order of the entries' places.
"""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from anchorscope.report.charts.display import Display
from anchorscope.report.experiments.section_answer import Answer
from anchorscope.report.experiments.section_chart import ChartSpec, catalogued_sections
from anchorscope.report.experiments.section_tables import TableSpec
from anchorscope.report.findings import Findings
from anchorscope.report.page_sections import Section, SectionFigure, filled
from anchorscope.report.palette import display_name
from anchorscope.report.wording import Table


@dataclass(frozen=True)
class SectionSpec:
    """What an experiment puts on the page, whatever the run."""

    slug: str
    title: str
    rows: Callable[[Findings], pl.DataFrame]
    """The experiment's rows of a run. There is no section where there are none and no figure was made."""
    asks: str
    """What is asked, and how; about 25 words."""
    careful: str
    """What can go wrong in reading it; about 25 words."""
    answer: Answer
    charts: tuple[ChartSpec, ...] = ()
    tables: tuple[TableSpec, ...] = ()
    """The first that has lines is the one that the plain-text report shows."""
    docs: str = ""
    """Below docs/; empty for the page under evidence/ of the same name as the slug."""

    def section(self, findings: Findings) -> Section | None:
        """The section of a run; None where the experiment was not made."""
        rows = self.rows(findings)
        figures = tuple(SectionFigure(one.name, one.alt, one.caption) for one in self.charts if one.was_made(findings))
        if not rows.height and not figures:
            return None
        answer, verdict = self.answer.give(findings, rows)
        tables = filled(*((spec.title, spec.table(findings, rows)) for spec in self.tables))
        docs = self.docs or f"evidence/{self.slug}.md"
        return Section(self.slug, self.title, (self.asks, self.careful), tables, figures, answer, verdict, docs)


def section_specs() -> list[SectionSpec]:
    """The sections of all experiments of the catalogue, in the order of the page."""
    found = catalogued_sections()
    assert all(isinstance(spec, SectionSpec) for spec in found), found
    return found


def experiment_charts() -> list[ChartSpec]:
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
    what = "1 thing" if len(rows) == 1 else f"{len(rows)} things"
    answer = f"{what} cannot be said on this model and these questions, each for its reason."
    table = Table(("dataset", "experiment", "reason"), rows, 3)
    return Section("unavailable", "Not available", (), filled(("", table)), answer=answer)
