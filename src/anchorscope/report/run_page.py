"""The page of a run: the answer, the charts, whether to trust it, items, further evidence, how it was made."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

import polars as pl

from anchorscope.progress import Progress, Silent
from anchorscope.report.answer_card import AnswerCard, answer_card, trust_in_chart
from anchorscope.report.charts import EVIDENCE_PARTS, PROBE_AUC, figures_of
from anchorscope.report.checks import read
from anchorscope.report.findings import (
    CONTROLS,
    NEEDS,
    PARTS,
    PROBE,
    Findings,
    auc_of,
    band_layers,
    has_shares,
    nested_auc,
    share_at,
    summary_of,
    truth_readers,
)
from anchorscope.report.items import item_table
from anchorscope.report.page import (
    Section,
    SectionFigure,
    SectionsPage,
    filled,
    write_json,
    write_sections_page,
)
from anchorscope.report.palette import BASELINES, display_name
from anchorscope.report.panel_figure import catalogued_sections, save_all
from anchorscope.report.reading import Reading, readings_table, verdicts_table
from anchorscope.report.wording import Table, count, estimate, listing, shown
from anchorscope.stats.estimate import Estimate

POSITION_NOTES = {
    "final": "The probe reads the answer's last token, which has seen question and answer.",
    "answer_end": "The probe reads the last token of the entity in the answer, found without looking at the label.",
    "answer_before": "The probe reads the token before the answer's entity, which has not seen the answer: A-Anchored "
    "here means a verdict that needs neither the key words nor the answer.",
}
"""What each probe position can show."""


def write_all(
    findings: Findings, out: Path, progress: Progress | None = None, report: bool = True
) -> list[Reading]:
    """Write observations.json and answer.json and, with `report`, figures, report.md and report.html."""
    out.mkdir(parents=True, exist_ok=True)
    readings = read(findings)
    write_json(out / "observations.json", [reading.record() for reading in readings])
    write_json(out / "answer.json", answer_card(findings, readings).record())
    if report:
        save_all(figures_of(findings), out, progress or Silent())
        write_report(findings, readings, out)
    return readings


def write_report(findings: Findings, readings: Sequence[Reading], out: Path) -> None:
    """Write report.html and report.md; the figures must already be in out/figures."""
    card, further = answer_card(findings, readings), experiment_sections(findings)
    sections = [
        _charts_section(findings, readings),
        _trust_section(findings, readings, card),
        Section("items", "Items", live="item-table"),
        *(
            [Section("further", "Further evidence", (_FURTHER,), more=tuple(further))]
            if further
            else []
        ),
        _methods_section(findings, readings),
        Section("repeat", "Repeat", code=findings.command),
    ]
    page = SectionsPage(
        "anchorscope",
        f"{findings.model}: does its sense of truth come from the question or the answer?",
        card,
        (),
        sections,
        (
            SectionFigure(
                "delta_p",
                _DELTA_P,
                trust_in_chart(findings, readings).words("Trust this chart?"),
                title="The paper's chart",
                narrow=True,
            ),
        ),
        findings.model,
    )
    write_sections_page(page, out, "report", {"item-data": item_table(findings)})


_DELTA_P = "Mean change of the probability of the true label per layer, for Q-Anchored and A-Anchored items"
_FURTHER = (
    "Other ways to ask the same question, on the items, probes and groups of the chart, with 95% intervals. All "
    "numbers are in experiments.csv."
)
_PARTS = (
    "The probe's evidence for the truth has four parts, which sum to 100%: what only question and answer together "
    "carry (the match: the only part that can be knowledge of the fact), what the question alone tells (hard topics), "
    "what the answer alone tells (plausible strings, confidence), and what either of them tells by itself. They are "
    "averaged over a band of layers that is fixed before any share is computed: all layers whose AUC is within one "
    "standard error of the best."
)
_LINES = (
    "ΔP is the change of the true label's probability under the same cut, in percentage points. Solid, Q-Anchored: "
    "answers whose verdict flips at l* (the ticks). Dashed, A-Anchored: answers whose verdict stays."
)
_CAUTION = (
    "Two lines are no evidence of two pathways: items are sorted by what the cut does to them, so one group lies below "
    "the other, even in a simulated model with one pathway (−40 against −1)."
)


def _texts(findings: Findings, readings: Iterable[Reading], *claims: str) -> str:
    """What these checks say, each sentence once with the numbers of every dataset."""
    numbers: dict[str, list[str]] = {}
    for reading in readings:
        if reading.claim in claims:
            name = (
                f"{display_name(reading.dataset or '')}: "
                if len(findings.datasets) > 1
                else ""
            )
            numbers.setdefault(reading.sentence, []).append(f"{name}{reading.numbers}")
    return " ".join(
        f"{sentence} ({'; '.join(each)})." for sentence, each in numbers.items()
    )


def _charts_section(findings: Findings, readings: Sequence[Reading]) -> Section:
    has_parts, single = has_shares(findings), len(findings.datasets) == 1
    parts = SectionFigure(
        EVIDENCE_PARTS.name, EVIDENCE_PARTS.alt, EVIDENCE_PARTS.caption, narrow=single
    )
    return Section(
        "chart",
        "How to read the charts",
        (
            *((_PARTS,) if has_parts else ()),
            _LINES,
            f"{_CAUTION} {_texts(findings, readings, 'sorts_by_label')}",
        ),
        figures=(parts,) if has_parts else (),
    )


def _trust_section(
    findings: Findings, readings: Sequence[Reading], card: AnswerCard
) -> Section:
    single = len(findings.datasets) == 1
    checks = [
        reading
        for standing in ("tested", "control")
        for reading in readings
        if reading.standing == standing
    ]
    each = readings_table(checks, subjects=not single)
    tests = Section(
        "checks",
        "Tests and controls",
        (
            "Tests have p-values corrected together (Holm). Controls of the parts are checked over the same band of "
            "layers, those of ΔP at every layer with a joint band.",
        ),
        filled(("", each if single else verdicts_table(checks, findings.datasets))),
        more=()
        if single
        else (Section("", "Each with its numbers", (), filled(("", each))),),
    )
    share = filled(
        ("The parts over the band, and under every control", share_table(findings))
    )
    numbers = "The numbers: probes and baselines, before and after the cut"
    folds = "Every fold at its own reference layer, chosen on the other folds; probes that see less in half splits."
    probes = Section(
        "probes",
        "Is the probe any good, and what survives the cut?",
        figures=(
            SectionFigure(
                PROBE_AUC.name, PROBE_AUC.alt, PROBE_AUC.caption, narrow=single
            ),
        ),
        more=(Section("", numbers, (folds,), filled(("", probe_table(findings)))),),
    )
    shift = (
        "Without its question an answer gives a probe less reason to say “true”, so the cut can push all verdicts "
        "towards “false”: true answers flip, false ones have nowhere to go. "
    )
    parts = (
        tests,
        *(
            [Section("share", "The parts and their controls", (), share)]
            if has_shares(findings)
            else []
        ),
        probes,
        Section("labels", "Are the labels right?", (label_words(findings),)),
        Section(
            "sorting",
            "Does the paper's rule sort by label?",
            (shift + _texts(findings, readings, "towards_false"),),
        ),
    )
    return Section(
        "trust",
        "Can I trust it?",
        tuple(f"{warning}." for warning in card.warnings),
        parts=parts,
    )


def _methods_section(findings: Findings, readings: Sequence[Reading]) -> Section:
    described = [reading for reading in readings if reading.standing == "description"]
    all_checks = Section(
        "",
        "Further checks",
        (
            "A check is “yes” or “no” only if its whole 95% interval lies on one side of the threshold. Statements "
            "about a whole curve use a band for all layers. These are not corrected for how many there are.",
        ),
        filled(("", readings_table(described, subjects=len(findings.datasets) > 1))),
    )
    return Section(
        "methods",
        "Methods",
        (run_line(findings),),
        facts=findings.facts,
        more=(
            all_checks,
            Section(
                "", "From questions to items", (), filled(("", counts_table(findings)))
            ),
            Section(
                "",
                "Methods paragraph and BibTeX, to copy",
                (methods_paragraph(findings),),
                code=bibtex(findings),
            ),
        ),
    )


def experiment_sections(findings: Findings) -> list[Section]:
    """The sections of the experiments that were made, and what could not be."""
    made = [spec.section(findings) for spec in catalogued_sections()]
    reasons = findings.unavailable.select(
        pl.col("dataset", "experiment", "reason").fill_null("–")
    )
    rows = tuple(
        (display_name(dataset), experiment, reason)
        for dataset, experiment, reason in reasons.iter_rows()
    )
    if rows:
        checks = "1 check is" if len(rows) == 1 else f"{len(rows)} checks are"
        answer = f"{checks} not available on this model and these questions."
        absent = filled(("", Table(("dataset", "experiment", "reason"), rows, 3)))
        made.append(Section("unavailable", "Not available", (), absent, answer=answer))
    return [section for section in made if section is not None]


def run_line(findings: Findings) -> str:
    """What was run: how many questions, how many answers are used, and what evidence and key words are."""
    names = listing([display_name(dataset) for dataset in findings.datasets])
    asked, used, true = (
        count(_total(findings, column)) for column in ("asked", "used", "used_true")
    )
    return (
        f"{findings.model}: {asked} questions ({names}); {used} answers are used, {true} of them true. Evidence is the "
        f"log-odds of truth that a linear probe reads from the model's states ({findings.site} output, position "
        f"“{findings.position}”). Key words say what the question asks about; hiding them means cutting attention to "
        f"them. {POSITION_NOTES.get(findings.position, '')}"
    )


def label_words(findings: Findings) -> str:
    """Where the labels come from, and what wrong ones would do to the numbers."""
    asked, supplied = (
        _total(findings, column) or 0 for column in ("asked", "supplied_labels")
    )
    graded = (
        "Labels are graded by rules. How often these are wrong on your answers is not known: read some of them under "
        "“Items”."
    )
    origin = "All labels were supplied." if 0 < asked <= supplied else graded
    return f"{origin} Random errors pull an AUC towards 0.5; the parts are ratios and hardly move."


def _total(findings: Findings, column: str) -> int | None:
    return (
        int(findings.counts[column].sum())
        if column in findings.counts.columns
        else None
    )


# Tables


def counts_table(findings: Findings) -> Table:
    """What became of the questions."""
    _, *names = columns = findings.counts.select(
        "dataset", pl.exclude("dataset")
    ).columns
    rows = findings.counts.select(columns).iter_rows()
    cells = tuple(
        (display_name(dataset), *map(count, values)) for dataset, *values in rows
    )
    return Table(("dataset", *(name.replace("_", " ") for name in names)), cells)


def share_table(findings: Findings) -> Table:
    """The parts over the band, under the knockout and every control."""
    rows = []
    for dataset in findings.datasets:
        for cut, words in ({"knockout": "key words hidden"} | CONTROLS).items():
            shares = [share_at(findings, dataset, cut, part) for part in PARTS | NEEDS]
            if any(shares):
                name = (
                    f"{display_name(dataset)}, layers {band_layers(findings, dataset)}"
                )
                rows.append(
                    (name, words, *(shown(share, estimate) for share in shares))
                )
    return Table(("dataset", "cut", *(PARTS | NEEDS).values()), tuple(rows), 2)


def probe_table(findings: Findings) -> Table:
    """AUC of the probes, every fold at its own l*, of everything simpler, and under the cuts at the headline site."""
    sites, own = (
        findings.probe_scores.filter(pl.col("kind") == "transfer")["site"],
        findings.site,
    )
    readers = {
        dataset: truth_readers(findings, dataset) for dataset in findings.datasets
    }
    simpler = dict.fromkeys(
        name for by_name in readers.values() for name in by_name if name != PROBE
    )
    nested = partial(nested_auc, findings)
    areas: dict[str, Callable[..., Estimate | None]] = {
        **{
            f"probe at {site}": partial(nested, site=site)
            for site in sorted(sites.drop_nulls().unique())
        },
        f"probe at {own}, and confidence": partial(nested, kind="nested+confidence"),
        f"probe at {own}, within relations": partial(
            nested, kind="nested-within-relation"
        ),
        **{
            f"baseline: {words}": partial(auc_of, findings, kind=kind)
            for kind, words in BASELINES.items()
        },
        **{
            f"baseline: {name}": lambda dataset, name=name: readers[dataset].get(name)
            for name in simpler
        },
        "random words hidden, same probe": partial(nested, intervention="random"),
        "key words hidden, same probe": partial(nested, intervention="knockout"),
        "key words hidden, probe trained again": partial(
            nested, intervention="knockout", kind="nested-refit"
        ),
        "the same with permuted labels: chance": partial(
            summary_of, findings, quantity="auc_permuted", group="refit"
        ),
    }
    rows = (
        (
            name,
            *(
                shown(area(dataset), lambda auc: estimate(auc, 3))
                for dataset in findings.datasets
            ),
        )
        for name, area in areas.items()
    )
    return Table(("AUC", *map(display_name, findings.datasets)), tuple(rows))


# What a paper can say of the run


def methods_paragraph(findings: Findings) -> str:
    """The run in the words of a methods section."""
    facts = findings.facts
    names = listing([display_name(dataset) for dataset in findings.datasets])
    shown = [
        f"{name.capitalize()}: {facts[name]}."
        for name in ("prompt", "answers", "balance", "exact tokens")
        if name in facts
    ]
    sentences = [
        f"Answers of {facts.get('model', findings.model)} on {names}.",
        *shown,
        f"Linear probes (L2-regularised logistic regression) read the {findings.site} output of each of "
        f"{findings.n_layers} layers at the position “{findings.position}”; reference layers were chosen on the other "
        "folds.",
        "Attention from all later tokens to the question's key words was cut in every layer up to the one that is "
        "read. The probe's evidence is divided into four parts by the direct effect of a partially linear model: what "
        "the state with the key words cut, the state before the answer, and both side by side leave of it, estimated "
        "by half-splits with ridge regressions out of fold; controls are cuts of random words of equal attention, "
        "another site of the clean run, and permuted labels.",
    ]
    if "statistics" in facts:
        sentences.append(
            f"Statistics: {facts['statistics']}; intervals are 95% bootstrap intervals over groups, and p-values of "
            "the tested questions are corrected by Holm's method."
        )
    if version := _version(findings):
        sentences.append(f"anchorscope {version}.")
    return " ".join(sentences)


def bibtex(findings: Findings) -> str:
    """What to cite: the paper whose method this follows, and this program; CITATION.cff has the same."""
    text = (files("anchorscope.report") / "templates" / "citation.bib").read_text(
        encoding="utf-8"
    )
    return text.rstrip().replace("VERSION", _version(findings) or "0.1.0")


def _version(findings: Findings) -> str:
    """Of anchorscope, from the list of versions."""
    versions = findings.facts.get("versions", "").split(", ")
    return next(
        (text.split(" ", 1)[1] for text in versions if text.startswith("anchorscope ")),
        "",
    )
