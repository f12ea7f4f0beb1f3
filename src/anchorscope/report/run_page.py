"""The page of a run: the answer, the charts, whether to trust it, items, further evidence, how it was made."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from anchorscope.report import run_tables as tables
from anchorscope.report.answer_card import AnswerCard, answer_card
from anchorscope.report.charts.auc_charts import PROBE_AUC, SURVIVING_SIGNAL
from anchorscope.report.charts.evidence_parts import EVIDENCE_PARTS
from anchorscope.report.findings import Findings
from anchorscope.report.items import item_table
from anchorscope.report.page_sections import Section, SectionFigure, SectionsPage, filled, write_sections_page
from anchorscope.report.page_writer import REPORT_SCRIPTS
from anchorscope.report.palette import display_name
from anchorscope.report.panel_figure import catalogued_sections
from anchorscope.report.reading import Reading, readings_table, verdicts_table
from anchorscope.report.shares import has_shares
from anchorscope.report.wording import Table, as_percent, count, listing

FILES = {
    "report.html, report.md": "this page, and the same as plain text",
    "answer.json": "the answer, for programs",
    "observations.json": "every check with number, interval and verdict, for programs",
    "figures/": "every figure as SVG with its numbers as CSV; `open_run(RUN).figure(NAME)` in Python draws others",
    "*.csv, *.parquet": "the tables behind every number; docs/run-folder.md lists their columns",
    "probes.safetensors": "the probes' weights",
    "recipe.toml": "the full configuration; running it repeats this run",
    "manifest.json": "versions, seeds, hashes, times; written last",
}
"""The files of a run folder."""

POSITION_NOTES = {
    "final": "The probe reads the answer's last token, which has seen question and answer.",
    "answer_end": "The probe reads the last token of the entity in the answer, found without looking at the label.",
    "answer_before": "The probe reads the token before the answer's entity, which has not seen the answer: A-Anchored "
    "here means a verdict that needs neither the key words nor the answer.",
}
"""What each probe position can show."""
WRONG_TRUE, WRONG_FALSE = 0.044, 0.014
"""Share of wrong labels among answers that the grading rules call true (5 of 114) and false (4 of 291), on answers that
they had not seen (docs/grading.md)."""


def write_report(findings: Findings, readings: Sequence[Reading], out: Path) -> None:
    """Write report.html and report.md; the figures must already be in out/figures."""
    card = answer_card(findings, readings)
    further = experiment_sections(findings)
    sections = [
        _charts_section(findings, readings),
        _trust_section(findings, readings, card),
        Section("items", "Items", live="item-table"),
        *([Section("further", "Further evidence", (_FURTHER,), more=tuple(further))] if further else []),
        _methods_section(findings, readings),
    ]
    page = SectionsPage(
        "anchorscope",
        f"{findings.model}: does its sense of truth come from the question or from the answer?",
        (),
        sections,
        findings.command,
        FILES,
        card,
        (SectionFigure("delta_p", _DELTA_P, "", title="The paper's chart"),),
        findings.model,
    )
    write_sections_page(page, out, "report", REPORT_SCRIPTS, {"item-data": item_table(findings)})


_DELTA_P = "Mean change of the probability of the true label per layer, for Q-Anchored and A-Anchored items"
_FURTHER = (
    "Other ways to ask the same question, on the items, probes and groups of the chart, with 95% intervals. All "
    "numbers are in experiments.csv."
)
_PARTS = (
    "The probe's evidence for the truth has four parts, which sum to 100%: what only question and answer together "
    "carry (the match: the only part that can be knowledge of the fact), what the question alone tells (hard topics), "
    "what the answer alone tells (plausible strings, confidence), and what either tells. They are averaged over a band "
    "of layers that is fixed before any share is computed: all layers whose AUC is within one standard error of the "
    "best."
)
_LINES = (
    "ΔP is the change of the true label's probability under the same cut, in percentage points. Solid, Q-Anchored: "
    "answers whose verdict flips at l* (the ticks). Dashed, A-Anchored: answers whose verdict stays."
)
_CAUTION = (
    "Two lines are no evidence of two pathways: items are sorted by what the cut does to them, so one group lies below "
    "the other under every such rule, even in a simulated model with one pathway (−40 against −1)."
)


def _texts(findings: Findings, readings: Iterable[Reading], *claims: str) -> str:
    """What these checks say, each sentence once with the numbers of every dataset."""
    numbers: dict[str, list[str]] = {}
    for reading in readings:
        if reading.claim in claims and reading.verdict is not None:
            name = f"{display_name(reading.dataset or '')}: " if len(findings.datasets) > 1 else ""
            numbers.setdefault(reading.sentence, []).append(f"{name}{reading.numbers}")
    return " ".join(f"{sentence} ({'; '.join(each)})." for sentence, each in numbers.items())


def _charts_section(findings: Findings, readings: Sequence[Reading]) -> Section:
    note = (
        "“On the line” is what the chart draws: all folds at one layer. “At each fold's l*” reads every fold at the "
        "layer where its items were sorted, as the paper does; it is lower because sorting by flips at a layer selects "
        f"what is low there. {POSITION_NOTES.get(findings.position, '')}"
    )
    shown, single = has_shares(findings), len(findings.datasets) == 1
    parts = SectionFigure(EVIDENCE_PARTS.name, EVIDENCE_PARTS.alt, EVIDENCE_PARTS.caption, narrow=single)
    corrected = "The same chart, with the shift that all verdicts share removed"
    return Section(
        "chart",
        "How to read the charts",
        (*((_PARTS,) if shown else ()), _LINES, f"{_CAUTION} {_texts(findings, readings, 'sorts_by_label')}"),
        figures=(
            *((parts,) if shown else ()),
            SectionFigure("delta_p_corrected", corrected, "ΔP corrected for the common shift.", narrow=True),
        ),
        more=(Section("", "ΔP under every rule", (note,), filled(("", tables.reference_table(findings)))),),
    )


def _trust_section(findings: Findings, readings: Sequence[Reading], card: AnswerCard) -> Section:
    single = len(findings.datasets) == 1
    checks = [reading for reading in readings if reading.key and reading.standing in ("tested", "control")]
    checks.sort(key=lambda reading: reading.standing != "tested")
    each = readings_table(checks, subjects=not single)
    tests = Section(
        "checks",
        "Tests and controls",
        (
            "Tests have p-values corrected together (Holm). Controls of the parts are checked over the same band of "
            "layers, those of ΔP at every layer with a joint band.",
        ),
        filled(("", each if single else verdicts_table(checks, findings.datasets))),
        more=() if single else (Section("", "Each with its numbers", (), filled(("", each))),),
    )
    share = filled(
        ("The parts over the band, and under every control", tables.share_table(findings)),
        ("What else reads truth: AUC in half splits", tables.truth_readers_table(findings)),
    )
    probes = Section(
        "probes",
        "Is the probe any good, and what survives the cut?",
        figures=tuple(
            SectionFigure(spec.name, spec.alt, spec.caption, narrow=single) for spec in (PROBE_AUC, SURVIVING_SIGNAL)
        ),
        more=(
            Section(
                "",
                "The numbers: probes and baselines, before and after the cut",
                ("Every fold at its own reference layer, chosen on the other folds.",),
                filled(("", tables.probe_table(findings))),
            ),
        ),
    )
    sorting = Section(
        "sorting",
        "Does the paper's rule sort by label?",
        (
            "Without its question an answer gives a probe less reason to say “true”, so the cut can push all verdicts "
            "towards “false”: true answers flip, false ones have nowhere to go. "
            + _texts(findings, readings, "towards_false", "share_below_null"),
        ),
        more=(
            Section(
                "",
                "The groups: who is in them, and sorted at other layers",
                (
                    "The corrected rule makes the groups alike in true answers by design. Kappa: agreement of the "
                    "verdicts before and after the cut beyond chance.",
                    "Sorting by flips at one layer lowers the curve there in any case. A trough that moves with the "
                    "sorting layer comes from the sorting, one that stays comes from the model.",
                ),
                filled(("", tables.groups_table(findings)), ("", tables.moved_table(findings))),
            ),
        ),
    )
    parts = (
        tests,
        *([Section("share", "The parts and their controls", (), share)] if has_shares(findings) else []),
        probes,
        Section("labels", "Are the labels right?", (label_words(findings),)),
        sorting,
    )
    return Section("trust", "Can I trust it?", tuple(f"{warning}." for warning in card.warnings), parts=parts)


def _methods_section(findings: Findings, readings: Sequence[Reading]) -> Section:
    several = len(findings.datasets) > 1
    described, built_in = (
        readings_table([reading for reading in readings if reading.standing == standing], subjects=several)
        for standing in ("description", "by construction")
    )
    all_checks = Section(
        "",
        "All checks",
        (
            "A check is “yes” or “no” only if its whole 95% interval lies on one side of the threshold. Statements "
            "about a whole curve use a band for all layers. These are not corrected for how many there are.",
        ),
        filled(("", described), ("Without a verdict: the sorting rule causes these by itself", built_in)),
    )
    return Section(
        "methods",
        "Methods",
        (run_line(findings),),
        facts=findings.facts,
        more=(
            all_checks,
            Section("", "From questions to items", (), filled(("", tables.counts_table(findings)))),
            Section("", "Methods paragraph and BibTeX, to copy", (methods_paragraph(findings),), code=bibtex(findings)),
            Section("", "Time and memory", (), filled(("", tables.steps_table(findings)))),
        ),
    )


def experiment_sections(findings: Findings) -> list[Section]:
    """The sections of the experiments that were made, and what could not be."""
    made = [spec.section(findings) for spec in catalogued_sections()]
    reasons = findings.unavailable.select(pl.col("dataset", "experiment", "reason").fill_null("–"))
    rows = tuple((display_name(dataset), experiment, reason) for dataset, experiment, reason in reasons.iter_rows())
    if rows:
        checks = "1 check is" if len(rows) == 1 else f"{len(rows)} checks are"
        answer = f"{checks} not available on this model and these questions."
        absent = filled(("", Table(("dataset", "experiment", "reason"), rows, 3)))
        made.append(Section("unavailable", "Not available", (), absent, answer=answer))
    return [section for section in made if section is not None]


def run_line(findings: Findings) -> str:
    """What was run: how many questions, how many answers are used, and what evidence and key words are."""
    names = listing([display_name(dataset) for dataset in findings.datasets])
    asked, used, true = (count(_total(findings, column)) for column in ("asked", "used", "used_true"))
    return (
        f"{findings.model}: {asked} questions ({names}); {used} answers are used, {true} of them true. Evidence is the "
        f"log-odds of truth that a linear probe reads from the model's states ({findings.site} output, position "
        f"“{findings.position}”). Key words say what the question asks about; hiding them means cutting attention to "
        "them."
    )


def label_words(findings: Findings) -> str:
    """What wrong labels would do to the numbers."""
    asked, supplied = (_total(findings, column) or 0 for column in ("asked", "supplied_labels"))
    graded = (
        f"Labels are graded by rules; of answers checked by hand, {as_percent(WRONG_TRUE)} of those called true and "
        f"{as_percent(WRONG_FALSE)} of those called false were wrong."
    )
    origin = "All labels were supplied." if 0 < asked <= supplied else graded
    return f"{origin} Random errors pull an AUC towards 0.5; the parts are ratios and hardly move."


def _total(findings: Findings, column: str) -> int | None:
    return int(findings.counts[column].sum()) if column in findings.counts.columns else None


# What a paper can say of the run

BIBTEX = """@inproceedings{luo2026two,
  title     = {Two Pathways to Truthfulness: On the Intrinsic Encoding of {LLM} Hallucinations},
  author    = {Luo, Wen and Peng, Guangyue and Li, Wei and Wei, Shaohang and Song, Feifan and Wang, Liang and
               Yang, Nan and Zhang, Xingxing and Jin, Jing and Wei, Furu and Wang, Houfeng},
  booktitle = {Proceedings of the 64th Annual Meeting of the Association for Computational Linguistics
               (Volume 1: Long Papers)},
  pages     = {25580--25626},
  year      = {2026},
  eprint    = {2601.07422},
  archiveprefix = {arXiv}
}
@software{anchorscope,
  title   = {anchorscope: where a language model's sense of truth comes from},
  author  = {{The anchorscope contributors}},
  version = {VERSION},
  year    = {2026},
  license = {Apache-2.0}
}"""
"""The paper whose method this follows, and this program; CITATION.cff has the same."""


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
    """What to cite."""
    return BIBTEX.replace("VERSION", _version(findings) or "0.1.0")


def _version(findings: Findings) -> str:
    """Of anchorscope, from the list of versions."""
    versions = findings.facts.get("versions", "").split(", ")
    return next((one.split(" ", 1)[1] for one in versions if one.startswith("anchorscope ")), "")
