"""The page of a run: everything its templates show, put together.

Answer card, chart, "Can I trust it?", items, detectors, further evidence, appendix: the answer first, then how sure,
then why.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.report import run_tables as tables
from anchorscope.report import share_tables
from anchorscope.report.answer_card import AnswerCard, answer_card
from anchorscope.report.chart_data import page_data
from anchorscope.report.findings import Findings
from anchorscope.report.items.explorer_data import item_data
from anchorscope.report.methods_text import bibtex, methods_paragraph
from anchorscope.report.page_sections import Section, filled
from anchorscope.report.page_words import chart_words, label_words, run_line, shift_words
from anchorscope.report.page_writer import REPORT_SCRIPTS, write_page
from anchorscope.report.palette import display_name
from anchorscope.report.panel_figure import catalogued_sections
from anchorscope.report.shares import has_shares
from anchorscope.report.statements.statement import Reading
from anchorscope.report.wording import Table

FILES = {
    "report.html, report.md": "this page, and the same as plain text",
    "answer.json": "the answer card, for programs",
    "observations.json": "every reading with number, interval and verdict, for programs",
    "figures/": "every figure as PNG, SVG and PDF, with the numbers drawn as CSV",
    "evidence_parts.csv": "the parts of the evidence per layer and over the band, with controls",
    "evidence_items.parquet": "the terms of every item behind them",
    "evidence_tests.csv": "numbers beside the parts: differences to the control, displacement, AUCs",
    "curves.csv, curve_samples.parquet": "mean ΔP per layer, group, rule, site and intervention; its bootstrap draws",
    "reference_curves.csv": "the plain curve, sorted at other layers",
    "summary.csv": "shares, agreement, shift and controls, one number per row",
    "probe_scores.csv": "AUC of all probes and baselines",
    "pathways.parquet": "the group of every item under every rule",
    "effects.parquet": "log-odds of every item before and after every intervention, per layer",
    "items.parquet": "every question, answer, label and status, used or not",
    "probes.safetensors": "the probes' weights",
    "experiments.csv, experiment_items.parquet": "the further experiments: every statistic, and every item",
    "recipe.toml": "the full configuration; running it repeats this run",
    "manifest.json": "versions, seeds, hashes, times; written last",
}
"""What lies in the folder; docs/run-folder.md has the columns."""

POSITION_NOTES = {
    "final": "The probe reads the answer's last token, which has seen question and answer.",
    "answer_end": "The probe reads the last token of the entity in the answer; a rule that does not look at the label "
    "says which that is.",
    "answer_before": "The probe reads the token just before the answer's entity, which has not seen the answer: "
    "A-Anchored here means a verdict that needs neither the cut words nor the answer.",
}
"""What each probe position can show."""


def write_report(findings: Findings, observations: Sequence[Reading], out: Path) -> None:
    """Write report.html and report.md; the figures must already lie in out/figures."""
    content = _content(findings, observations, answer_card(findings, observations))
    data = {"chart-data": page_data(findings), "item-data": item_data(findings)}
    write_page("report.html", content, out, scripts=REPORT_SCRIPTS, data=data)
    write_page("report.md", content, out)


def _content(findings: Findings, observations: Sequence[Reading], card: AnswerCard) -> dict[str, Any]:
    return {
        "findings": findings,
        "card": card,
        "run_line": run_line(findings),
        "has_shares": has_shares(findings),
        "chart_words": chart_words(findings, observations),
        "position_note": POSITION_NOTES.get(findings.position, ""),
        "shares": share_tables.share_table(findings),
        "share_layers": share_tables.layers_table(findings),
        "share_tests": share_tables.tests_table(findings),
        "ladder": share_tables.ladder_table(findings),
        "reference": tables.reference_table(findings),
        "label_words": label_words(findings),
        "shift_words": shift_words(findings),
        "trust": tables.trust_table(findings),
        "probes": tables.probe_table(findings),
        "surviving": tables.surviving_table(findings),
        "moved": tables.moved_table(findings),
        "detectors": tables.detectors_table(findings),
        "experiments": experiment_sections(findings),
        **(readings := _readings(observations)),
        "sure_by_dataset": tables.statements_table(findings, readings["sure"]),
        "described_by_dataset": tables.statements_table(findings, readings["described"]),
        "methods": methods_paragraph(findings),
        "bibtex": bibtex(findings),
        "counts": tables.counts_table(findings),
        "steps": tables.steps_table(findings),
        "files": {
            name: words
            for name, words in FILES.items()
            if findings.experiments.height or not name.startswith("experiment")
        },
    }


def _readings(observations: Sequence[Reading]) -> dict[str, Any]:
    """The readings by what they are."""
    judged = [one for one in observations if one["standing"] != "by construction"]
    first = [one for one in judged if one["key"] and one["standing"] != "description"]
    return {
        "sure": [
            *(one for one in first if one["standing"] == "tested"),
            *(one for one in first if one["standing"] == "control"),
        ],
        "described": [one for one in judged if one["key"] and one["standing"] == "description"],
        "other_readings": [one for one in judged if not one["key"]],
        "built_in": [one for one in observations if one["standing"] == "by construction"],
    }


def experiment_sections(findings: Findings) -> list[Section]:
    """The sections of the experiments that were made, and what could not be."""
    made = [spec.section(findings) for spec in catalogued_sections()]
    return [section for section in (*made, _unavailable_section(findings)) if section is not None]


def _unavailable_section(findings: Findings) -> Section | None:
    """What was asked for and cannot be done on this run."""
    reasons = findings.unavailable.select(pl.col("dataset", "experiment", "reason").fill_null("–"))
    rows = tuple((display_name(dataset), experiment, reason) for dataset, experiment, reason in reasons.iter_rows())
    if not rows:
        return None
    what = "1 thing" if len(rows) == 1 else f"{len(rows)} things"
    answer = f"{what} cannot be said on this model and these questions, each for its reason."
    table = Table(("dataset", "experiment", "reason"), rows, 3)
    return Section("unavailable", "Not available", (), filled(("", table)), answer=answer)
