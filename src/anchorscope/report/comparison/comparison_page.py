"""The page of several runs, of a comparison or a study: the answer, the picture, what changes, the controls."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from anchorscope.progress import Progress
from anchorscope.report.answer_card import AnswerCard, Trust, answer_sentence, controls_in, counted_controls, trust_in
from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.charts.display import save_all
from anchorscope.report.charts.evidence_parts import part_bars
from anchorscope.report.checks import read
from anchorscope.report.comparison.claims import check_claims, claims_table
from anchorscope.report.comparison.compared import Compared, Difference, delta_p_panels, panel_title
from anchorscope.report.comparison.trends import order_by_size, read_across
from anchorscope.report.findings import Findings, nested_auc
from anchorscope.report.page_sections import Section, SectionFigure, SectionsPage, filled, write_sections_page
from anchorscope.report.palette import display_name
from anchorscope.report.reading import Reading, readings_table
from anchorscope.report.shares import has_shares, share_at, share_layer, why_silent
from anchorscope.report.wording import NOTHING, Table, count, estimate, layer_names, listing, parameters_text

_TITLE_LETTERS = 60
FILES = {
    "report.html, report.md": "this page, and the same as plain text",
    "observations.json": "checks across runs, each run's main checks, and claims where asked for, for programs",
    "figures/": "every figure, with its numbers as CSV",
    "curves.csv": "mean ΔP per layer of all runs, with intervals; the column run tells them apart",
    "comparison.json": "which runs, their models and recipes, every difference, hashes; written last",
}
STUDY_FILES = {
    "report.html, report.md": FILES["report.html, report.md"],
    "summary.csv": "a row per run and dataset: share that needs the key words, AUC, Q-Anchored share, with intervals",
    "figures/": FILES["figures/"],
    "runs/NAME/": "the folder of every run, with its own page",
    "study.toml": "the study, with paths written out",
}


def write_comparison(compared: Compared, out: Path, progress: Progress, claims: bool = False) -> list[str]:
    """Write the figures, observations.json, report.md and report.html; return what the page says first."""
    bars = part_bars(compared.runs)
    figures = [*([bars] if bars else []), delta_p_panels(compared)]
    progress.start("figures", len(figures))
    save_all(figures, out, progress)
    progress.finish()
    readings = {run.model: read(run) for run in compared.runs}
    across, checked = read_across(compared.runs), check_claims(compared.runs) if claims else []
    if compared.kind == "comparison":
        own = [
            {**reading.record(), "id": f"{run}:{reading.id}", "scope": "run"}
            for run, of_run in readings.items()
            for reading in of_run
            if reading.key
        ]
        observations = [*(reading.record() for reading in (*across, *checked)), *own]
        dumped = json.dumps(observations, indent=2, ensure_ascii=False, allow_nan=False)
        (out / "observations.json").write_text(dumped + "\n", encoding="utf-8")
    card = comparison_card(compared, readings, across)
    setting = setting_words(compared)
    names = listing([run.model for run in compared.runs])
    title = compared.title or (names if len(names) <= _TITLE_LETTERS else f"{len(compared.runs)} runs side by side")
    page = SectionsPage(
        f"anchorscope {compared.kind}",
        f"{title}: question or answer?",
        (setting,),
        _sections(compared, readings, across, checked),
        compared.command,
        STUDY_FILES if compared.kind == "study" else FILES,
        card,
        _first_figures(compared),
        title,
    )
    write_sections_page(page, out, "report")
    trust = f"Trust it? {card.trust.verdict.capitalize()}: {card.trust.reason}." if card.trust else ""
    return [card.sentence, trust, setting]


def comparison_card(
    compared: Compared, readings: Mapping[str, Sequence[Reading]], across: Sequence[Reading]
) -> AnswerCard:
    """How much needs question and answer together, compared, and whether the controls allow to say so."""
    share = next((one for one in across if one.key and one.claim == "across:share_together"), None)
    if share is not None and share.more["values"] and share.estimate is not None:
        sentence = f"{share.sentence}: {share.numbers.partition(': ')[2]}; change {share.value}."
    else:
        real = [run for run in compared.runs if not run.random_weights]
        sentence = " ".join(f"{run.model}: {answer_sentence(run, readings[run.model])}" for run in real)
        sentence = sentence or "All runs have random weights: every number here is noise."
    return AnswerCard(listing([run.model for run in compared.runs]), sentence, _trust(compared, readings))


def _trust(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Trust:
    """The weakest of the runs decides."""
    real = [run for run in compared.runs if not run.random_weights]
    verdicts = {run.model: trust_in(run, readings[run.model]) for run in real}
    counted = counted_controls([one for run in real for one in controls_in(readings[run.model])])
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


def _first_figures(compared: Compared) -> tuple[SectionFigure, ...]:
    if not any(has_shares(run) for run in compared.runs):
        return (_delta_p_figure(compared),)
    text = (
        "Four parts that sum to 100%: what only question and answer together carry, what the question alone or the "
        "answer alone carries, and what either carries.",
    )
    alt = "Four parts of the probe's evidence, a bar per run and dataset"
    return (SectionFigure("evidence_bars", alt, "Means over each run's band of layers.", text=text),)


def _delta_p_figure(compared: Compared) -> SectionFigure:
    alt = "Mean change of the true label's probability per layer, a panel per run, for Q-Anchored and A-Anchored items"
    caption = f"ΔP in percentage points, with 95% intervals; {CHART_TITLES[compared.assignment]}."
    return SectionFigure("delta_p", alt, caption)


def _sections(
    compared: Compared, readings: Mapping[str, Sequence[Reading]], across: Sequence[Reading], claims: Sequence[Reading]
) -> list[Section]:
    sections = [Section("runs", "Runs", (), filled(("", runs_table(compared, readings))), links=compared.pages)]
    if compared.all_runs is not None:
        sections.append(Section("study", "All runs", (), filled(("", compared.all_runs))))
    if across:
        tables = filled(("", trends_table([one for one in across if one.key])))
        rest = filled(("", trends_table([one for one in across if not one.key])))
        more = (Section("", "Dataset by dataset", (), rest),) if rest else ()
        sections.append(Section("trends", f"What changes {order_by_size(compared.runs).along}", (), tables, more=more))
    delta_p = (
        "Solid, Q-Anchored: the probe's verdict flips when the key words are hidden. Dashed, A-Anchored: it stays. "
        "Items are sorted by what the cut does to them, so two curves are no evidence of two pathways.",
    )
    sections.append(Section("delta-p", "The paper's ΔP", delta_p, figures=(_delta_p_figure(compared),)))
    controls = controls_table(compared, readings)
    passed = "All controls passed, in every run and at every layer."
    words = "Those that failed or are inconclusive:" if controls.rows else passed
    sections.append(Section("controls", "Controls", (words,), filled(("", controls))))
    if len(compared.runs) > 1:
        flags = {flag.words.partition(":")[0]: _difference_words(flag) for flag in compared.flags}
        text = () if flags else ("Only the model differs." if not compared.same_weights else "Nothing differs.",)
        sections.append(Section("differences", "Differences", text, facts=flags))
    if claims:
        text = (
            "Five written descriptions of two published charts contradict each other. Each claim is checked on all "
            "curves of these runs: one curve that contradicts it with 95% confidence refutes it.",
        )
        sections.append(Section("claims", "Claims", text, filled(("", claims_table(claims)))))
    return sections


def _difference_words(flag: Difference) -> str:
    refused = " Refused unless allowed: they measure different things." if flag.refused else ""
    return f"{flag.text.partition(':')[2].strip() or flag.text}{refused}"


def runs_table(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Table:
    """A row per dataset and run: items, AUC, what needs both, the key words and random words, controls."""
    folders = dict(zip((run.model for run in compared.runs), compared.folders, strict=True))
    rows = []
    for dataset in compared.datasets:
        for run in (one for one in compared.runs if dataset in one.datasets):
            shares = [share_at(run, dataset, part="together"), share_at(run, dataset), share_at(run, dataset, "random")]
            quoted = why_silent(run, dataset) is None
            shown = [estimate(one, 0, 100.0, "%") if one and quoted else NOTHING for one in shares]
            controls = [one for one in controls_in(readings[run.model]) if one.dataset == dataset]
            passed = f"{sum(one.verdict == 'yes' for one in controls)} of {len(controls)}" if controls else NOTHING
            cells = (count(_used(run, dataset)), estimate(nested_auc(run, dataset)), *shown, passed)
            rows.append((display_name(dataset), panel_title(run), folders[run.model], *cells))
    needs = ("needs both", "needs the key words", "needs random words")
    return Table(("dataset", "run", "folder", "items", "AUC of the probe", *needs, "controls passed"), tuple(rows), 3)


def _used(run: Findings, dataset: str) -> int | None:
    return {row["dataset"]: row.get("used") for row in run.counts.to_dicts()}.get(dataset)


def trends_table(readings: Sequence[Reading]) -> Table:
    """The change from the first run to the last with every run's number, and whether it is one."""
    return readings_table([reading for reading in readings if reading.more["values"]], subjects=True)


def controls_table(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Table:
    """Run by run: what failed or is inconclusive, on which dataset, at which layers."""
    rows = []
    for run in (one for one in compared.runs if not one.random_weights):
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
