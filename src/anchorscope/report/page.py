"""The page: one HTML file that opens from disk without a network, and the same in Markdown.

Questions, answers and names are other people's text. In HTML every value is escaped by the template engine, and a
content policy in the page forbids all loads and all scripts but the page's own; in Markdown every value loses its
markup the same way. Figures are embedded as SVG images and data as JSON, so that the page can be mailed as it is.
"""

import base64
import html
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from anchorscope.report import run_tables as tables
from anchorscope.report.chart_data import page_data
from anchorscope.report.experiments.exact_tokens import cuts_table
from anchorscope.report.experiments.section import experiment_sections
from anchorscope.report.findings import Findings
from anchorscope.report.items.explorer_data import item_data
from anchorscope.report.page_script import (
    FRAME_SCRIPTS,
    REPORT_SCRIPTS,
    content_policy,
    embedded_json,
    joined_script,
    joined_styles,
)
from anchorscope.report.position_notes import POSITION_NOTES
from anchorscope.report.run_summary import summary_paragraph, warnings
from anchorscope.report.run_tables import examples_table
from anchorscope.report.statements.claim import Judged
from anchorscope.report.statements.claims import claims_table
from anchorscope.report.statements.prose import words

FILES = {
    "report.html": "this page",
    "report.md": "the same as plain text",
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

FURTHER_FILES = {
    "experiments.csv": "every statistic of the further experiments, with interval, n and method",
    "experiment_items.parquet": "what the further experiments measured on each item",
}
"""Written where further experiments were made."""

# Marks that mean something anywhere in a line, and those that do only where a line begins. "](" makes a link.
_MARKS = re.compile(r"[\\`*_|~$]|(?<=\])\(|^[-+#=\[!]")
_SPACES = re.compile(r"[^\S\u00a0\u202f]+")  # every blank and line break but the two that keep a number in one piece


def write_report(
    findings: Findings, observations: Sequence[dict[str, Any]], judged: Sequence[Judged], out: Path
) -> None:
    """Write report.html and report.md; the figures must already lie in out/figures."""
    content = _content(findings, observations, judged)
    data = {"chart-data": page_data(findings), "item-data": item_data(findings)}
    write_page("report.html", content, out, scripts=REPORT_SCRIPTS, data=data)
    write_page("report.md", content, out)


def write_page(
    name: str,
    content: Mapping[str, Any],
    out: Path,
    *,
    scripts: Sequence[str] = FRAME_SCRIPTS,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write NAME from its template NAME.j2, as HTML with figures, scripts and data inside or as Markdown.

    A template of HTML extends page.html.j2. The scripts find the data by their names, as `pageData(NAME)`.
    """
    if name.endswith(".html"):
        page = _environment(autoescape=True, finalize=None)
        script = joined_script(scripts)
        page.globals |= {
            "figure": lambda figure: _embedded(out / "figures" / f"{figure}.svg"),
            "policy": content_policy(script),
            "script": Markup(script),
            "styles": Markup(joined_styles()),
            "data": {key: embedded_json(value) for key, value in (data or {}).items()},
        }
    else:
        page = _environment(autoescape=False, finalize=_plain_text)
    (out / name).write_text(page.get_template(f"{name}.j2").render(content), encoding="utf-8")


def _content(findings: Findings, observations: Sequence[dict[str, Any]], judged: Sequence[Judged]) -> dict[str, Any]:
    return {
        "findings": findings,
        "key_readings": [reading for reading in observations if reading.get("key", True)],
        "other_readings": [reading for reading in observations if not reading.get("key", True)],
        "prose": words(findings, observations),
        "claims": claims_table([one for one in judged if one.plain.found]),
        "claims_elsewhere": claims_table([one for one in judged if not one.plain.found]),
        "summary": summary_paragraph(findings, observations),
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
        "further": experiment_sections(findings),
        "files": FILES | (FURTHER_FILES if findings.experiments.height else {}),
    }


def _environment(*, autoescape: bool, finalize: Callable[[object], object] | None) -> Environment:
    return Environment(
        loader=PackageLoader("anchorscope.report"),
        autoescape=autoescape,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _embedded(path: Path) -> str:
    """The figure as a data address; as an image, nothing inside it can run or collide with the page."""
    if not path.is_file():
        return ""
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _plain_text(value: object) -> object:
    """Text in Markdown: one line, its markup switched off. Parts of the template itself are marked as safe."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    line = _SPACES.sub(" ", value).strip()
    return html.escape(_MARKS.sub(lambda mark: "\\" + mark.group(), line), quote=False)
