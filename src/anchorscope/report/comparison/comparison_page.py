"""The page of several runs, of a comparison or a study: the answer, the picture, what changes, the controls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.progress import Progress
from anchorscope.report.answer_card import AnswerCard, Trust, answer_sentence, controls_in, trust_in
from anchorscope.report.charts.delta_p import delta_p_of_runs
from anchorscope.report.charts.evidence_parts import part_bars
from anchorscope.report.checks import read
from anchorscope.report.comparison.checks import along, check_claims, read_across, trained_runs
from anchorscope.report.findings import Findings, nested_auc
from anchorscope.report.page import Section, SectionFigure, SectionsPage, filled, write_json, write_sections_page
from anchorscope.report.palette import display_name
from anchorscope.report.panel_figure import save_all
from anchorscope.report.reading import Reading, readings_table, verdicts_table
from anchorscope.report.shares import share_at, why_silent
from anchorscope.report.wording import NOTHING, Table, count, estimate, listing, parameters_text

RANDOM_MARK = "RANDOM WEIGHTS"
_TITLE_LETTERS, _MOST_SENTENCES = 60, 3
STACKED = ("curves", "probe_scores", "summary", "evidence_parts")
"""Tables of the runs that the folder has as one each, with a column `run`."""


@dataclass(frozen=True)
class Difference:
    """One thing in which the runs are not alike."""

    name: str
    """As `--allow` takes it: site, group-by, random-weights …"""
    refused: bool
    """Whether it is there only because the user allowed it."""
    values: Mapping[str, str]
    """What each run has, by the run's name."""
    words: str
    """The difference without its reason: "site: mlp in A; residual in B"."""
    reason: str
    """What it does to the comparison."""

    @property
    def text(self) -> str:
        """The whole line."""
        return f"{self.words}. {self.reason[:1].upper()}{self.reason[1:]}."

    def record(self) -> dict[str, Any]:
        """For programs."""
        kind = "allowed" if self.refused else "flag"
        return {"name": self.name, "kind": kind, "text": self.text, "values": dict(self.values)}


@dataclass(frozen=True)
class Compared:
    """Runs side by side, as the page sees them."""

    runs: tuple[Findings, ...]
    """In order of their panels; `model` is a name that no other run here has."""
    flags: tuple[Difference, ...] = ()
    command: str = ""
    """The command that repeats it."""
    same_weights: bool = False
    """Whether all runs have the same model."""
    study: str = ""
    """The title of a study; a comparison is named after its runs."""
    other_runs: tuple[tuple[str, str, str], ...] = ()
    """Runs of a study that are not compared here: name, state, and why."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the runs' own pages, by name."""


def write_comparison(compared: Compared, out: Path, progress: Progress, claims: bool = False) -> list[str]:
    """Write the tables, the figures and the page; return what the page says first."""
    bars, names = part_bars(compared.runs), [run.model for run in compared.runs]
    figures = [*([bars] if bars else []), delta_p_of_runs(compared.runs, dict(zip(names, names, strict=True)), ())]
    progress.start("figures", len(figures))
    save_all(figures, out, progress)
    progress.finish()
    for name in STACKED:
        tables = [getattr(run, name).select(pl.lit(run.model).alias("run"), pl.all()) for run in compared.runs]
        pl.concat(tables, how="diagonal_relaxed").write_csv(out / f"{name}.csv")
    readings = {run.model: read(run) for run in compared.runs}
    across, checked = read_across(compared.runs), check_claims(compared.runs) if claims else []
    own = [
        {**reading.record(), "id": f"{run}:{reading.id}", "scope": "run"}
        for run, of_run in readings.items()
        for reading in of_run
        if reading.key
    ]
    write_json(out / "observations.json", [*(reading.record() for reading in (*across, *checked)), *own])
    card, setting = comparison_card(compared, readings, across), setting_words(compared)
    title = compared.study or listing(names)
    title = title if len(title) <= _TITLE_LETTERS else f"{len(names)} runs side by side"
    page = SectionsPage(
        f"anchorscope {'study' if compared.study else 'comparison'}",
        f"{title}: question or answer?",
        (setting,),
        _sections(compared, readings, across, checked, bars is not None),
        compared.command,
        card=card,
        figures=(_BARS if bars else _DELTA_P,),
        short_title=title,
    )
    write_sections_page(page, out, "report")
    trust = f"Trust it? {card.trust.verdict.capitalize()}: {card.trust.reason}." if card.trust else ""
    return [card.sentence, trust, setting]


_BARS = SectionFigure(
    "evidence_bars",
    "Four parts of the probe's evidence, a bar per run and dataset",
    "Four parts that sum to 100%: what only question and answer together carry, what the question alone or the answer "
    "alone carries, and what either carries. Means over each run's band of layers.",
    narrow=True,
)
_DELTA_P = SectionFigure(
    "delta_p",
    "Mean change of the true label's probability per layer, a panel per run, for Q-Anchored and A-Anchored items",
    "ΔP in percentage points, with 95% intervals. Solid, Q-Anchored: the probe's verdict flips when the key words are "
    "hidden. Dashed, A-Anchored: it stays. Items are sorted by what the cut does to them, so two curves are no "
    "evidence of two pathways.",
)
_CLAIMS = (
    "Five written descriptions of two published charts contradict each other. Each claim is checked on all curves of "
    "these runs: one curve that contradicts it with 95% confidence refutes it. Q and A are the Q-Anchored and the "
    "A-Anchored curve."
)


def comparison_card(
    compared: Compared, readings: Mapping[str, Sequence[Reading]], across: Sequence[Reading]
) -> AnswerCard:
    """How much needs question and answer together, compared, and whether the controls allow to say so."""
    share = next((check for check in across if check.key and check.claim == "across:share_together"), None)
    if share is not None and share.estimate is not None:
        sentence = f"{share.sentence}: {share.numbers.partition(': ')[2]}; change {share.value}."
    else:
        sentence = _sentences_of_runs(compared, readings)
    return AnswerCard(listing([run.model for run in compared.runs]), sentence, _trust(compared, readings))


def _sentences_of_runs(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> str:
    """What the first runs say each."""
    trained = trained_runs(compared.runs)[:_MOST_SENTENCES]
    sentences = [f"{run.model}: {answer_sentence(run, readings[run.model])}" for run in trained]
    return " ".join(sentences) or "All runs have random weights: every number here is noise."


def _trust(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Trust:
    """The weakest of the runs decides."""
    verdicts = {run.model: trust_in(run, readings[run.model]) for run in trained_runs(compared.runs)}
    if not verdicts:
        return Trust("no", "random weights carry no evidence")
    weakest = min(verdicts, key=lambda name: ("no", "partly", "yes").index(verdicts[name].verdict))
    return replace(verdicts[weakest], reason=f"{weakest}: {verdicts[weakest].reason}")


def setting_words(compared: Compared) -> str:
    """Which runs, and what a reader must know before looking at the charts."""
    models = [f"{run.model} ({parameters_text(run.parameters)}, {run.n_layers} layers)" for run in compared.runs]
    sentences = [f"Runs: {listing(models)}."]
    if failed := [name for name, state, _ in compared.other_runs if state in ("failed", "damaged")]:
        sentences.append(f"Not in any number here, because they failed: {listing(failed)}.")
    if compared.same_weights:
        sentences.append("All of them have the same model.")
    differing = [flag.words.partition(":")[0] for flag in compared.flags if flag.name != "same-results"]
    if differing:
        sentences.append(f"They differ in {listing(differing)}.")
    return " ".join(sentences)


def _sections(
    compared: Compared,
    readings: Mapping[str, Sequence[Reading]],
    across: Sequence[Reading],
    claims: Sequence[Reading],
    has_bars: bool,
) -> list[Section]:
    others = "Other runs of the study", Table(("run", "state", "why"), compared.other_runs, 3)
    runs = filled(("", runs_table(compared, readings)), others)
    sections = [Section("runs", "Runs", (), runs, links=compared.pages)]
    measured = [check for check in across if check.estimate]
    single = [check for check in measured if not check.key]
    datasets = list(dict.fromkeys(check.dataset for check in single if check.dataset))
    changes = filled(
        ("", readings_table([check for check in measured if check.key], subjects=False)),
        ("The last run less the first, dataset by dataset", verdicts_table(single, datasets)),
    )
    if changes:
        sections.append(Section("changes", f"What changes {along(compared.runs)}", (), changes))
    if has_bars:  # without bars it is the page's first figure
        sections.append(Section("delta-p", "The paper's ΔP", figures=(_DELTA_P,)))
    controls = controls_table(compared, readings)
    text = "Those that failed or are inconclusive:" if controls.rows else "All controls passed, in every run."
    sections.append(Section("controls", "Controls", (text,), filled(("", controls))))
    if len(compared.runs) > 1:
        facts = {}
        for flag in compared.flags:
            name, _, words = flag.text.partition(":")
            facts[name] = words.strip() + (" Refused unless allowed: they measure different things." * flag.refused)
        nothing = "Nothing differs." if compared.same_weights else "Only the model differs."
        sections.append(Section("differences", "Differences", () if facts else (nothing,), facts=facts))
    if claims:
        sections.append(Section("claims", "Claims", (_CLAIMS,), (("", readings_table(claims, subjects=False)),)))
    return sections


def runs_table(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Table:
    """A row per dataset and run: items, AUC, what needs both, the key words and random words, controls."""
    rows = []
    for dataset in dict.fromkeys(name for run in compared.runs for name in run.datasets):
        for run in (run for run in compared.runs if dataset in run.datasets):
            used = {row["dataset"]: row.get("used") for row in run.counts.to_dicts()}
            shares = [share_at(run, dataset, part="together"), share_at(run, dataset), share_at(run, dataset, "random")]
            quoted = why_silent(run, dataset) is None
            cells = [estimate(share, 0, 100.0, "%") if share and quoted else NOTHING for share in shares]
            verdicts = [check.verdict for check in controls_in(readings[run.model]) if check.dataset == dataset]
            passed = f"{verdicts.count('yes')} of {len(verdicts)}" if verdicts else NOTHING
            numbers = (count(used.get(dataset)), estimate(nested_auc(run, dataset)), *cells, passed)
            rows.append((display_name(dataset), run.model, *numbers))
    needs = ("needs both", "needs the key words", "needs random words")
    return Table(("dataset", "run", "items", "AUC of the probe", *needs, "controls passed"), tuple(rows), 2)


def controls_table(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Table:
    """The controls that failed or are inconclusive, run by run."""
    controls = [
        replace(control, subject=f"{run.model}, {display_name(control.dataset or '')}")
        for run in trained_runs(compared.runs)
        for control in controls_in(readings[run.model])
        if control.verdict != "yes"
    ]
    return readings_table(sorted(controls, key=lambda control: control.verdict != "no"), subjects=True)
