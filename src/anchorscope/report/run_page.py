"""The page of a run: everything its templates show, put together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anchorscope.report import run_tables as tables
from anchorscope.report import share_tables
from anchorscope.report.chart_data import page_data
from anchorscope.report.experiments.exact_tokens import cuts_table
from anchorscope.report.experiments.section import experiment_sections
from anchorscope.report.findings import Findings
from anchorscope.report.items.explorer_data import item_data
from anchorscope.report.page_writer import REPORT_SCRIPTS, write_page
from anchorscope.report.run_summary import rules_paragraph, run_paragraph, warnings
from anchorscope.report.run_tables import examples_table
from anchorscope.report.statements.claim import Judged
from anchorscope.report.statements.claims import claims_table
from anchorscope.report.statements.prose import words
from anchorscope.report.statements.share_prose import lead

FILES = {
    "report.html": "this page",
    "report.md": "the same as plain text",
    "answer.json": "the answer card, for programs",
    "observations.json": "the readings and the claims of earlier ones, for programs",
    "figures/": "every figure as PNG, SVG and PDF, with the numbers drawn as CSV",
    "curves.csv": "mean ΔP per layer, group, rule, site and intervention, with intervals",
    "curve_samples.parquet": "the chart's curves in every bootstrap draw",
    "reference_curves.csv": "the plain curve, sorted at other layers",
    "summary.csv": "shares, agreement, shift and controls, one number per row",
    "probe_scores.csv": "AUC of all probes and baselines",
    "pathways.parquet": "the group of every item under every rule",
    "effects.parquet": "log-odds of every item before and after every intervention, per layer",
    "items.parquet": "every question, answer, label and status, used or not",
    "probes.safetensors": "the probes' weights",
    "recipe.toml": "the full configuration; running it repeats this run",
    "manifest.json": "versions, seeds, hashes, times; written last",
}

SHARE_FILES = {
    "question_share.csv": "the question share Λ per layer, of all items, thirds and controls, with intervals",
    "question_share_tests.csv": "what was tested of it at one layer, with p-values",
}
"""Written where the question share was measured."""
EXPERIMENT_FILES = {
    "experiments.csv": "every statistic of the further experiments, with interval, n and method",
    "experiment_items.parquet": "what the further experiments measured on each item",
}
"""Written where further experiments were made."""


POSITION_NOTES = {
    "final": (
        "The probe reads the last token of the whole answer. It has seen question and answer, so both pathways can "
        "reach it; but after a sentence it may be a full stop, whose state sums up more than the entity that is true "
        "or false."
    ),
    "answer_end": (
        "The probe reads the last token of the entity in the answer. It has seen the question and the entity, and "
        "nothing that was said after it; where the answer is the entity alone, it is the same token as the final one. "
        "Which token that is, is decided by a rule that does not look at the label."
    ),
    "answer_before": (
        "The probe reads the token just before the entity, which has not seen the answer. What it knows of the truth "
        "can only come from the question and from what the model is about to say, so A-Anchored means something else "
        "here: a verdict that needs neither the cut words nor the answer."
    ),
}
"""What each probe position can show, and what it cannot."""


def write_report(
    findings: Findings, observations: Sequence[dict[str, Any]], judged: Sequence[Judged], out: Path
) -> None:
    """Write report.html and report.md; the figures must already lie in out/figures."""
    content = _content(findings, observations, judged)
    data = {"chart-data": page_data(findings), "item-data": item_data(findings)}
    write_page("report.html", content, out, scripts=REPORT_SCRIPTS, data=data)
    write_page("report.md", content, out)


def _content(findings: Findings, observations: Sequence[dict[str, Any]], judged: Sequence[Judged]) -> dict[str, Any]:
    return {
        "findings": findings,
        **_readings(observations),
        **_question_share(findings, observations),
        "prose": words(findings, observations),
        "claims": claims_table([one for one in judged if one.plain.found]),
        "claims_elsewhere": claims_table([one for one in judged if not one.plain.found]),
        "run_paragraph": run_paragraph(findings),
        "rules_paragraph": rules_paragraph(findings, observations),
        "warnings": warnings(findings, observations),
        "counts": tables.counts_table(findings),
        "reference": tables.reference_table(findings),
        "trust": tables.trust_table(findings),
        "probes": tables.probe_table(findings),
        "surviving": tables.surviving_table(findings),
        "controls": tables.controls_table(findings),
        "moved": tables.moved_table(findings),
        "cuts": cuts_table(findings),
        "position_note": POSITION_NOTES.get(findings.position, ""),
        "steps": tables.steps_table(findings),
        "examples": examples_table(findings),
        "experiments": experiment_sections(findings),
        "files": (SHARE_FILES if findings.question_share.height else {})
        | FILES
        | (EXPERIMENT_FILES if findings.experiments.height else {}),
    }


def _readings(observations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The readings by what they are; those of the page's tables that come first are marked as key."""
    judged = [one for one in observations if one["standing"] != "by construction"]
    return {
        "tested_readings": [one for one in judged if one["standing"] == "tested" and one["dataset"] is not None],
        "control_readings": [one for one in judged if one["standing"] == "control" and one.get("key", True)],
        "key_readings": [one for one in judged if one["standing"] == "description" and one.get("key", True)],
        "other_readings": [one for one in judged if one["standing"] != "tested" and not one.get("key", True)],
        "built_in_readings": [one for one in observations if one["standing"] == "by construction"],
    }


def _question_share(findings: Findings, observations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The page's lead; nothing where the run did not measure the question share."""
    return {
        "lead": lead(findings, observations),
        "shares": share_tables.share_table(findings),
        "ladder": share_tables.ladder_table(findings),
        "share_tests": share_tables.tests_table(findings),
        "share_layers": share_tables.layers_table(findings),
    }
