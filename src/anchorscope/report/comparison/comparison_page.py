"""The page of several runs, of a comparison or a study: the answer, the picture, what changes, the controls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.progress import Progress
from anchorscope.report.answer_card import AnswerCard, Trust, answer_sentence, controls_in, counted_controls, trust_in
from anchorscope.report.charts.delta_p import delta_p_of_runs
from anchorscope.report.charts.display import save_all
from anchorscope.report.charts.evidence_parts import part_bars
from anchorscope.report.checks import read
from anchorscope.report.comparison.checks import check_claims, order_by_size, read_across
from anchorscope.report.findings import Findings, nested_auc
from anchorscope.report.page_sections import Section, SectionFigure, SectionsPage, filled, write_sections_page
from anchorscope.report.page_writer import write_json
from anchorscope.report.palette import display_name
from anchorscope.report.panel_figure import ExperimentFigure
from anchorscope.report.reading import Reading, readings_table
from anchorscope.report.shares import has_shares, share_at, share_layer, why_silent
from anchorscope.report.wording import NOTHING, Table, count, estimate, layer_names, listing, parameters_text

RANDOM_MARK = "RANDOM WEIGHTS"
_TITLE_LETTERS, _MOST_SENTENCES = 60, 3
_FILES = {
    "report.html, report.md": "this page, and the same as plain text",
    "observations.json": "checks across runs, each run's main checks, and claims where asked for, for programs",
    "figures/": "every figure, with its numbers as CSV",
}
FILES = {
    "comparison": _FILES
    | {
        "curves.csv": "mean ΔP per layer of all runs, with intervals; the column run tells them apart",
        "comparison.json": "which runs, their models and recipes, every difference, hashes; written last",
    },
    "study": _FILES
    | {
        "summary.csv": "a row per run and dataset: share that needs the key words, AUC, Q-Anchored share, intervals",
        "runs/NAME/": "the folder of every run, with its own page",
        "study.toml": "the study, with paths written out",
    },
}
"""What each kind of folder holds."""


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
    folders: tuple[str, ...]
    flags: tuple[Difference, ...] = ()
    command: str = ""
    """The command that repeats it."""
    kind: str = "comparison"
    title: str = ""
    """Of a study; a comparison is named after its runs."""
    other_runs: Table | None = None
    """Runs of a study that are not compared here, with their states."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the runs' own pages, by name."""
    note: str = ""
    """What else a reader must know first, such as runs that failed."""
    same_weights: bool = False
    """Whether all runs have the same model."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Every dataset of any run, in the order in which they first appear."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.datasets))

    @property
    def real_runs(self) -> list[Findings]:
        """Those with trained weights."""
        return [run for run in self.runs if not run.random_weights]


def write_comparison(compared: Compared, out: Path, progress: Progress, claims: bool = False) -> list[str]:
    """Write the figures, observations.json, report.md and report.html; return what the page says first."""
    bars = part_bars(compared.runs)
    figures = [*([bars] if bars else []), delta_p_panels(compared)]
    progress.start("figures", len(figures))
    save_all(figures, out, progress)
    progress.finish()
    readings = {run.model: read(run) for run in compared.runs}
    across, checked = read_across(compared.runs), check_claims(compared.runs) if claims else []
    own = [
        {**reading.record(), "id": f"{run}:{reading.id}", "scope": "run"}
        for run, of_run in readings.items()
        for reading in of_run
        if reading.key
    ]
    observations = [*(reading.record() for reading in (*across, *checked)), *own]
    write_json(out / "observations.json", observations)
    card, setting = comparison_card(compared, readings, across), setting_words(compared)
    names = listing([run.model for run in compared.runs])
    title = compared.title or (names if len(names) <= _TITLE_LETTERS else f"{len(compared.runs)} runs side by side")
    page = SectionsPage(
        f"anchorscope {compared.kind}",
        f"{title}: question or answer?",
        (setting,),
        _sections(compared, readings, across, checked),
        compared.command,
        FILES[compared.kind],
        card,
        (_BARS if bars else _DELTA_P,),
        title,
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


def comparison_card(
    compared: Compared, readings: Mapping[str, Sequence[Reading]], across: Sequence[Reading]
) -> AnswerCard:
    """How much needs question and answer together, compared, and whether the controls allow to say so."""
    share = next((check for check in across if check.key and check.claim == "across:share_together"), None)
    if share is not None and share.more["values"] and share.estimate is not None:
        sentence = f"{share.sentence}: {share.numbers.partition(': ')[2]}; change {share.value}."
    else:
        sentence = _sentence_without_change(compared, readings)
    return AnswerCard(listing([run.model for run in compared.runs]), sentence, _trust(compared, readings))


def _sentence_without_change(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> str:
    """Each run's own sentence; where no run has parts to quote, the reason once."""
    real = compared.real_runs
    if not real:
        return "All runs have random weights: every number here is noise."
    reasons = [why_silent(run, dataset) for run in real for dataset in run.datasets]
    if len(real) == 1 or None in reasons:
        return " ".join(f"{run.model}: {answer_sentence(run, readings[run.model])}" for run in real[:_MOST_SENTENCES])
    return f"Inconclusive: no run can estimate the parts of the probe's evidence ({real[0].model}: {reasons[0]})."


def _trust(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Trust:
    """The weakest of the runs decides."""
    verdicts = {run.model: trust_in(run, readings[run.model]) for run in compared.real_runs}
    counted = counted_controls([control for run in verdicts for control in controls_in(readings[run])])
    if not verdicts:
        return Trust("no", "random weights carry no evidence")
    ranks = ("no", "partly", "yes")
    name = min(verdicts, key=lambda name: (ranks.index(verdicts[name].verdict), "; " not in verdicts[name].reason))
    why = verdicts[name].reason.rpartition("; ")[0]
    return Trust(verdicts[name].verdict, f"{name}: {why}; over all runs {counted}" if why else counted)


def setting_words(compared: Compared) -> str:
    """Which runs, and what a reader must know before looking at the charts."""
    models = listing(
        [f"{run.model} ({parameters_text(run.parameters)}, {run.n_layers} layers)" for run in compared.runs]
    )
    sentences = [f"Runs: {models}.", *([compared.note] if compared.note else [])]
    noise = [run.model for run in compared.runs if run.random_weights]
    if noise:
        sentences.append(f"Random weights, so that the panel is noise: {listing(noise)}.")
    if compared.flags:
        things = "1 thing" if len(compared.flags) == 1 else f"{len(compared.flags)} things"
        beside = "The model is the same; the runs" if compared.same_weights else "Besides the model, the runs"
        sentences.append(f"{beside} differ in {things}.")
    elif compared.same_weights:
        sentences.append("The model and all options are the same.")
    return " ".join(sentences)


def _sections(
    compared: Compared, readings: Mapping[str, Sequence[Reading]], across: Sequence[Reading], claims: Sequence[Reading]
) -> list[Section]:
    sections = [Section("runs", "Runs", (), filled(("", runs_table(compared, readings))), links=compared.pages)]
    if compared.other_runs is not None and compared.other_runs.rows:
        sections.append(Section("others", "Other runs", (), filled(("", compared.other_runs))))
    if across:
        first, rest = (
            filled(
                ("", readings_table([check for check in across if check.key is key and check.estimate], subjects=True))
            )
            for key in (True, False)
        )
        more = (Section("", "Dataset by dataset", (), rest),) if rest else ()
        sections.append(Section("trends", f"What changes {order_by_size(compared.runs).along}", (), first, more=more))
    if any(has_shares(run) for run in compared.runs):  # without bars it is the page's first figure
        sections.append(Section("delta-p", "The paper's ΔP", figures=(_DELTA_P,)))
    controls = controls_table(compared, readings)
    words = "Those that failed or are inconclusive:" if controls.rows else "All controls passed, in every run."
    sections.append(Section("controls", "Controls", (words,), filled(("", controls))))
    if len(compared.runs) > 1:
        flags = {flag.words.partition(":")[0]: _difference_words(flag) for flag in compared.flags}
        text = () if flags else ("Nothing differs." if compared.same_weights else "Only the model differs.",)
        sections.append(Section("differences", "Differences", text, facts=flags))
    if claims:
        text = (
            "Five written descriptions of two published charts contradict each other. Each claim is checked on all "
            "curves of these runs: one curve that contradicts it with 95% confidence refutes it. Q and A are the "
            "Q-Anchored and the A-Anchored curve.",
        )
        head = ("claim", "says so", "says otherwise", "verdict", "number that decides it")
        rows = tuple(
            (claim.statement, claim.more["source"], claim.more["sources_against"], claim.verdict or "", claim.numbers)
            for claim in claims
        )
        sections.append(Section("claims", "Claims", text, (("", Table(head, rows, 5)),)))
    return sections


def _difference_words(flag: Difference) -> str:
    refused = " Refused unless allowed: they measure different things." if flag.refused else ""
    return f"{flag.text.partition(':')[2].strip() or flag.text}{refused}"


def runs_table(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Table:
    """A row per dataset and run: items, AUC, what needs both, the key words and random words, controls."""
    folders = dict(zip((run.model for run in compared.runs), compared.folders, strict=True))
    used = {run.model: {row["dataset"]: row.get("used") for row in run.counts.to_dicts()} for run in compared.runs}
    rows = []
    for dataset in compared.datasets:
        for run in (other for other in compared.runs if dataset in other.datasets):
            shares = [share_at(run, dataset, part="together"), share_at(run, dataset), share_at(run, dataset, "random")]
            quoted = why_silent(run, dataset) is None
            shown = [estimate(part, 0, 100.0, "%") if part and quoted else NOTHING for part in shares]
            controls = [check for check in controls_in(readings[run.model]) if check.dataset == dataset]
            passed = f"{sum(check.verdict == 'yes' for check in controls)} of {len(controls)}" if controls else NOTHING
            cells = (count(used[run.model].get(dataset)), estimate(nested_auc(run, dataset)), *shown, passed)
            rows.append((display_name(dataset), panel_title(run), folders[run.model], *cells))
    needs = ("needs both", "needs the key words", "needs random words")
    return Table(("dataset", "run", "folder", "items", "AUC of the probe", *needs, "controls passed"), tuple(rows), 3)


def controls_table(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Table:
    """Run by run: what failed or is inconclusive, on which dataset, at which layers."""
    rows = []
    for run in compared.real_runs:
        for control in controls_in(readings[run.model]):
            if control.verdict == "yes":
                continue
            layers = control.failing if control.verdict == "no" else control.doubtful
            where = layer_names(tuple(layers)) if layers else NOTHING
            where += ", the tested layer too" if layers and share_layer(run, control.dataset or "") in layers else ""
            name = display_name(control.dataset or "")
            rows.append((control.verdict or "", run.model, name, control.sentence, where))
    rows.sort(key=lambda row: row[0] != "no")
    return Table(("verdict", "run", "dataset", "control", "beyond its limit at"), tuple(rows), 5)


def panel_title(run: Findings) -> str:
    """The model's name; random weights are named where nobody can overlook them."""
    return f"{run.model} ({RANDOM_MARK})" if run.random_weights and RANDOM_MARK not in run.model else run.model


def delta_p_panels(compared: Compared) -> ExperimentFigure:
    """ΔP per layer of both groups under the paper's rule with the random control: a panel per run, one y axis."""
    return delta_p_of_runs(compared.runs, {run.model: panel_title(run) for run in compared.runs}, _notes(compared))


def _notes(compared: Compared) -> list[str]:
    """Where each run was read, if not the same for all, and the datasets that a run lacks."""
    read_at = {run.model: f"{run.site}, {run.position}" for run in compared.runs}
    places = "; ".join(f"{model} at {place}" for model, place in read_at.items())
    notes = [f"Read at different places: {places}."] if len(set(read_at.values())) > 1 else []
    for run in compared.runs:
        lacking = [display_name(name) for name in compared.datasets if name not in run.datasets]
        notes += [f"{run.model}: not run on {', '.join(lacking)}"] if lacking else []
    return notes
