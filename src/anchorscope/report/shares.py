"""The parts of a run's evidence, looked up: over the band of layers, layer by layer, and the numbers beside them.

Everything is read at the headline site and position. Datasets with too few answers have no parts; `why_silent` says so.
"""

import math
from dataclasses import dataclass

import polars as pl

from anchorscope.artefacts.schema import BAND
from anchorscope.report.findings import (
    Findings,
    auc_of,
    first_estimate,
    headline_layer,
    nested_auc,
    row_estimate,
    select,
)
from anchorscope.report.verdicts import WIDEST_SHARE, p_from_interval
from anchorscope.report.wording import count
from anchorscope.stats.estimate import Estimate

PARTS = {
    "together": "only question and answer together",
    "question": "the question alone",
    "answer": "the answer alone",
    "either": "either of them",
}
"""The four parts, which sum to 1, in words."""
NEEDS = {"needs-question": "needs the question's key words", "needs-answer": "needs the answer"}
"""Sums of parts."""
TOGETHER, NEEDS_QUESTION = "together", "needs-question"
CONTROLS = {
    "random": "random words cut",
    "resample": "key words of another question",
    "paraphrase": "paraphrased question",
    "permuted": "labels permuted within relations",
    "random-weights": "random weights of the same shape",
}
"""What stands beside the knockout, in words."""
PROBE, WORDS, PERMUTED = "probe", "words + confidence", "permuted labels"
"""What reads truth, as evidence_tests.csv names them."""
FEWEST_ANSWERS, FEWEST_GROUPS = 300, 20
"""Used answers and groups that a sentence about shares needs."""
_LOWEST, _HIGHEST = -0.1, 1.1  # a share beyond is no statement about anything


@dataclass(frozen=True)
class EvidenceResult:
    """One row of evidence_tests.csv."""

    estimate: Estimate
    p_value: float
    """As the run tested it, or from the interval; NaN where neither is known."""
    intervention: str
    group: str
    """The part, or what an AUC is of."""


def has_shares(findings: Findings) -> bool:
    """Whether any dataset of the run has parts."""
    return any(share_at(findings, dataset) is not None for dataset in findings.datasets)


def share_at(
    findings: Findings, dataset: str, intervention: str = "knockout", part: str = NEEDS_QUESTION
) -> Estimate | None:
    """A share over the band."""
    table = findings.at_headline(findings.evidence_parts)
    return first_estimate(select(table, dataset=dataset, intervention=intervention, part=part, layer=BAND), "share")


def why_silent(findings: Findings, dataset: str) -> str | None:
    """Why nothing is said about this dataset's shares; None where something may be."""
    for name, needed in (("answers", FEWEST_ANSWERS), ("groups", FEWEST_GROUPS)):
        result = result_of(findings, dataset, name)
        if result is not None and result.estimate.value < needed:
            return f"{count(round(result.estimate.value))} used {name}, {count(needed)} are needed"
    share = share_at(findings, dataset, part=TOGETHER)
    if share is None:
        return "the run did not measure its parts"
    probe, permuted = (result_of(findings, dataset, "auc", name) for name in (PROBE, PERMUTED))
    limit = max(0.5, permuted.estimate.value if permuted else 0.5)
    if probe is None or not probe.estimate.ci_low > limit:
        return "the probe reads truth no better than one of permuted labels"
    shares = [found for part in PARTS if (found := share_at(findings, dataset, part=part)) is not None]
    if any(not _LOWEST <= found.value <= _HIGHEST or found.ci_high - found.ci_low > WIDEST_SHARE for found in shares):
        return "there is too little evidence to divide"
    return None


def band_layers(findings: Findings, dataset: str) -> str:
    """The layers of the band, in words; empty where there is none."""
    names = select(findings.at_headline(findings.evidence_tests), dataset=dataset)["layers"].drop_nulls()
    return str(names[0]) if len(names) else ""


def band_numbers(findings: Findings, dataset: str) -> list[int]:
    """The same as numbers."""
    numbers: list[int] = []
    for run in filter(None, band_layers(findings, dataset).split(", ")):
        first, _, last = run.partition("–")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def share_layer(findings: Findings, dataset: str) -> int | None:
    """The middle layer of the band; of a run without one the middle one of the reference layers."""
    band = band_numbers(findings, dataset)
    return band[len(band) // 2] if band else headline_layer(findings, dataset)


def results_of(findings: Findings, dataset: str, quantity: str) -> list[EvidenceResult]:
    """All rows of a quantity, in file order."""
    rows = select(findings.at_headline(findings.evidence_tests), dataset=dataset, quantity=quantity)
    results = []
    for row in rows.filter(pl.col("value").is_finite()).iter_rows(named=True):
        value, tested = row_estimate(row), row["p_value"]
        p = p_from_interval(value) if tested is None or math.isnan(tested) else tested
        results.append(EvidenceResult(value, p, row["intervention"] or "", row["group"] or ""))
    return results


def result_of(findings: Findings, dataset: str, quantity: str, group: str | None = None) -> EvidenceResult | None:
    """The first row of a quantity, or of one of its groups."""
    results = results_of(findings, dataset, quantity)
    return next((result for result in results if group in (None, result.group)), None)


def truth_readers(findings: Findings, dataset: str) -> dict[str, Estimate]:
    """AUC of the probe, then of what may read truth without the model's understanding, by name.

    The run's own null experiments where they were made. The nested probe, and words with confidence, every run has.
    """
    readers = {result.group: result.estimate for result in results_of(findings, dataset, "auc")}
    known = {PROBE: nested_auc(findings, dataset), WORDS: auc_of(findings, dataset, "words+confidence")}
    for name, area in known.items():
        if area is not None and (name not in readers or math.isnan(readers[name].ci_low)):
            readers[name] = area
    return {name: readers[name] for name in sorted(readers, key=lambda name: name != PROBE)}
