"""The further evidence in the order in which the page tells it. A new experiment is added here and nowhere else."""

from collections.abc import Callable
from typing import Protocol

import polars as pl

from anchorscope.report.charts.display import Display
from anchorscope.report.experiments.agreement import AgreementChart, agreement_section
from anchorscope.report.experiments.boundary import BoundaryChart, boundary_section
from anchorscope.report.experiments.heads import HeadsChart, heads_section
from anchorscope.report.experiments.intervention_curves import (
    FAMILIES,
    answer_only_section,
    patching_section,
    zeroing_section,
)
from anchorscope.report.experiments.interventions import InterventionsChart, interventions_section
from anchorscope.report.experiments.layers import LayersChart, layers_section
from anchorscope.report.experiments.saliency import SaliencyChart, saliency_section
from anchorscope.report.experiments.section import Section, filled
from anchorscope.report.experiments.self_awareness import SelfAwarenessChart, self_awareness_section
from anchorscope.report.experiments.sensitivity import SensitivityChart, sensitivity_section
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.run_tables import Table


class Made(Protocol):
    """A figure that knows whether a run holds what it draws."""

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether there is something to draw."""
        ...

    @classmethod
    def from_findings(cls, findings: Findings) -> Display:
        """The figure of a run."""
        ...


CHARTS: tuple[type[Made], ...] = (
    InterventionsChart, *FAMILIES, LayersChart, HeadsChart, SaliencyChart, BoundaryChart, SelfAwarenessChart,
    AgreementChart, SensitivityChart,
)  # fmt: skip


def further_displays(findings: Findings) -> list[Display]:
    """The figures of the experiments that were made."""
    return [chart.from_findings(findings) for chart in CHARTS if chart.was_made(findings)]


def further_sections(findings: Findings) -> list[Section]:
    """The subsections of the experiments that were made, and what could not be."""
    makers: list[Callable[[Findings], Section | None]] = [
        interventions_section, patching_section, answer_only_section, layers_section, heads_section, zeroing_section,
        saliency_section, boundary_section, self_awareness_section, agreement_section, sensitivity_section,
        unavailable_section,
    ]  # fmt: skip
    return [section for make in makers if (section := make(findings)) is not None]


def unavailable_section(findings: Findings) -> Section | None:
    """What was asked for and cannot be done here."""
    told = findings.unavailable.select(pl.col("dataset", "experiment", "reason").fill_null("–"))
    rows = tuple((display_name(dataset), experiment, reason) for dataset, experiment, reason in told.iter_rows())
    if not rows:
        return None
    text = ("What was asked for and cannot be said on this model and these questions, each with its reason.",)
    table = Table(("dataset", "experiment", "reason"), rows, 3)
    return Section("unavailable", "Not available", text, filled(("", table)))
