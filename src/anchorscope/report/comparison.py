"""Several runs side by side: the page, what changes from run to run, and earlier claims.

Runs are independent samples, so their intervals are combined as such (`stats/curves.py`). A number changes if the
difference between the first run and the last is significant and no step between two runs significantly goes the other
way; it does not if one does, or if the difference is too small to matter. Random weights are left out.

The claims (`--claims`) come from five written descriptions of two published layer charts, which contradict each other.
Each is a row of one table: our wording, who says so or otherwise, a number of the curves and where it must lie. One
curve that contradicts a claim with 95 % confidence refutes it; it is confirmed only if every curve confirms it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.progress import Progress
from anchorscope.report.answer_card import (
    NO_EVIDENCE,
    AnswerCard,
    Trust,
    answer_sentence,
    controls_in,
    controls_of_parts,
    part_bar,
    trust_in,
)
from anchorscope.report.charts import delta_p_of_runs
from anchorscope.report.checks import read
from anchorscope.report.findings import (
    NEEDS_QUESTION,
    Findings,
    nested_auc,
    sampled_curve,
    share_at,
    why_silent,
)
from anchorscope.report.page import (
    Section,
    SectionFigure,
    SectionsPage,
    filled,
    write_json,
    write_sections_page,
)
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED, display_name
from anchorscope.report.panel_figure import save_all
from anchorscope.report.reading import EVIDENCE, Reading, readings_table, verdicts_table
from anchorscope.report.verdicts import (
    MIDDLE_THIRD,
    MIN_RECOVERY,
    MIN_TROUGH,
    NEAR_ZERO,
    NEGLIGIBLE_SHARE,
    STAYS_FLAT,
    TWO_SIZES,
    WORST_FIRST,
    Verdict,
    has_interval,
    inside,
)
from anchorscope.report.wording import (
    NOTHING,
    Table,
    capitalised,
    count,
    estimate,
    listing,
    number,
    parameters_text,
)
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import SampledCurve, difference_of, mean_of
from anchorscope.stats.estimate import Estimate

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
        return {
            "name": self.name,
            "kind": kind,
            "text": self.text,
            "values": dict(self.values),
        }


@dataclass(frozen=True)
class Compared:
    """Runs side by side, as the page sees them."""

    runs: tuple[Findings, ...]
    """In order of their panels; `model` is a name that no other run here has."""
    flags: tuple[Difference, ...] = ()
    command: str = ""
    same_weights: bool = False
    missing: tuple[tuple[str, str, str], ...] = ()
    """Runs of the same study that are not compared: name, state, and why."""


def write_comparison(
    compared: Compared, out: Path, progress: Progress, claims: bool = False
) -> list[str]:
    """Write the tables, the figure and the page; return what the page says first."""
    names = [run.model for run in compared.runs]
    save_all([delta_p_of_runs(compared.runs)], out, progress)
    for name in STACKED:
        tables = [
            getattr(run, name).select(pl.lit(run.model).alias("run"), pl.all())
            for run in compared.runs
        ]
        pl.concat(tables, how="diagonal_relaxed").write_csv(out / f"{name}.csv")
    readings = {run.model: read(run) for run in compared.runs}
    across, checked = (
        read_across(compared.runs),
        check_claims(compared.runs) if claims else [],
    )
    own = [
        {**reading.record(), "id": f"{run}:{reading.id}", "scope": "run"}
        for run, of_run in readings.items()
        for reading in of_run
        if reading.key
    ]
    write_json(
        out / "observations.json",
        [*(reading.record() for reading in (*across, *checked)), *own],
    )
    card, setting = comparison_card(compared, readings, across), setting_words(compared)
    title = listing(names)
    if len(title) > _TITLE_LETTERS:
        title = f"{len(names)} runs side by side"
    page = SectionsPage(
        "anchorscope comparison",
        f"{title}: question or answer?",
        card,
        (setting,),
        _sections(compared, readings, across, checked),
        (replace(_DELTA_P, narrow=len(names) == 1),),
        title,
    )
    write_sections_page(page, out, "report")
    return [card.sentence, card.trust.words() if card.trust else "", setting]


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
    compared: Compared,
    readings: Mapping[str, Sequence[Reading]],
    across: Sequence[Reading],
) -> AnswerCard:
    """How much needs question and answer together, compared; the weakest run decides whether to trust it."""
    trained, names = (
        trained_runs(compared.runs),
        listing([run.model for run in compared.runs]),
    )
    share = next(
        (
            check
            for check in across
            if check.key and check.claim == "across:share_together"
        ),
        None,
    )
    if share is not None and share.estimate is not None:
        sentence = f"{share.sentence}: {share.numbers.partition(': ')[2]}; change {share.value}."
    elif trained:
        sentence = " ".join(
            f"{run.model}: {answer_sentence(run, readings[run.model])}"
            for run in trained[:_MOST_SENTENCES]
        )
    else:
        sentence = "All runs have random weights: every number here is noise."
    trusts = [_of_run(run, trust_in(run, readings[run.model])) for run in trained]
    bars = [
        replace(bar, label=f"{run.model}, {display_name(dataset)}")
        for run in compared.runs
        for dataset in run.datasets
        if (bar := part_bar(run, dataset)) is not None
    ]
    return AnswerCard(names, sentence, _weakest(trusts), bars=tuple(bars))


def _of_run(run: Findings, trust: Trust) -> Trust:
    return replace(trust, reason=f"{run.model}: {trust.reason}")


def _weakest(trusts: Sequence[Trust]) -> Trust:
    """What runs side by side can be trusted: no more than the weakest of them."""
    worst_first = ("no", "partly", "yes")
    ordered = sorted(trusts, key=lambda trust: worst_first.index(trust.verdict))
    return ordered[0] if ordered else Trust("no", NO_EVIDENCE)


def setting_words(compared: Compared) -> str:
    """Which runs, and what a reader must know before looking at the charts."""
    models = [
        f"{run.model} ({parameters_text(run.parameters)}, {run.n_layers} layers)"
        for run in compared.runs
    ]
    sentences = [f"Runs: {listing(models)}."]
    failed = [
        name for name, state, _ in compared.missing if state in ("failed", "damaged")
    ]
    if failed:
        sentences.append(
            f"Not in any number here, because they failed: {listing(failed)}."
        )
    if compared.same_weights:
        sentences.append("All of them have the same model.")
    differing = [
        flag.words.partition(":")[0]
        for flag in compared.flags
        if flag.name != "same-results"
    ]
    if differing:
        sentences.append(f"They differ in {listing(differing)}.")
    return " ".join(sentences)


def _sections(
    compared: Compared,
    readings: Mapping[str, Sequence[Reading]],
    across: Sequence[Reading],
    claims: Sequence[Reading],
) -> list[Section]:
    missing = Table(("run", "state", "why"), compared.missing, 3)
    runs = filled(
        ("", runs_table(compared, readings)),
        ("Runs of the study that are not compared", missing),
    )
    sections = [Section("runs", "Runs", (), runs)]
    measured = [check for check in across if check.estimate]
    datasets = list(dict.fromkeys(check.dataset for check in measured))
    if measured:
        changes = (("The last run less the first", verdicts_table(measured, datasets)),)
        sections.append(
            Section("changes", f"What changes {along(compared.runs)}", (), changes)
        )
    sections.append(
        Section(
            "controls", "Controls", (), filled(("", controls_table(compared, readings)))
        )
    )
    if len(compared.runs) > 1:
        facts = {}
        for flag in compared.flags:
            name, _, words = flag.text.partition(":")
            facts[name] = words.strip() + (
                " Refused unless allowed: they measure different things." * flag.refused
            )
        nothing = (
            "Nothing differs." if compared.same_weights else "Only the model differs."
        )
        sections.append(
            Section(
                "differences", "Differences", () if facts else (nothing,), facts=facts
            )
        )
    if claims:
        sections.append(
            Section(
                "claims",
                "Claims",
                (_CLAIMS,),
                (("", readings_table(claims, subjects=False)),),
            )
        )
    return [*sections, Section("repeat", "Repeat", code=compared.command)]


def runs_table(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> Table:
    """A row per dataset and run: items, AUC, what needs both, the key words and random words, controls."""
    rows = []
    for dataset in dict.fromkeys(
        name for run in compared.runs for name in run.datasets
    ):
        for run in (run for run in compared.runs if dataset in run.datasets):
            used = {row["dataset"]: row.get("used") for row in run.counts.to_dicts()}
            shares = [
                share_at(run, dataset, part="together"),
                share_at(run, dataset),
                share_at(run, dataset, "random"),
            ]
            quoted = why_silent(run, dataset) is None
            cells = [
                estimate(share, 0, 100.0, "%") if share and quoted else NOTHING
                for share in shares
            ]
            verdicts = [
                check.verdict
                for check in controls_of_parts(readings[run.model])
                if check.dataset == dataset
            ]
            passed = (
                f"{verdicts.count('yes')} of {len(verdicts)}" if verdicts else NOTHING
            )
            numbers = (
                count(used.get(dataset)),
                estimate(nested_auc(run, dataset)),
                *cells,
                passed,
            )
            rows.append((display_name(dataset), run.model, *numbers))
    needs = ("needs both", "needs the key words", "needs random words")
    return Table(
        ("dataset", "run", "items", "AUC of the probe", *needs, "controls passed"),
        tuple(rows),
        2,
    )


def controls_table(
    compared: Compared, readings: Mapping[str, Sequence[Reading]]
) -> Table:
    """A row per control, a column per run and dataset."""
    controls = [
        replace(control, dataset=f"{run.model}, {display_name(control.dataset or '')}")
        for run in trained_runs(compared.runs)
        for control in controls_in(readings[run.model])
    ]
    return verdicts_table(
        controls, list(dict.fromkeys(control.dataset for control in controls))
    )


# Checks across runs

POINTS = "points"


def _share(
    run: Findings, dataset: str, part: str, intervention: str = "knockout"
) -> Estimate | None:
    """A part of the evidence, if it may be quoted."""
    return (
        share_at(run, dataset, intervention, part)
        if why_silent(run, dataset) is None
        else None
    )


def _lowest_delta_p(run: Findings, dataset: str) -> Estimate | None:
    curve = sampled_curve(run, dataset, Q_ANCHORED)
    return None if curve is None else shape.trough(curve).depth


QUANTITIES: dict[str, tuple[str, Callable[[Findings, str], Estimate | None]]] = {
    "share_together": (
        "what needs question and answer together",
        partial(_share, part="together"),
    ),
    "share_question": (
        "what the question alone carries",
        partial(_share, part="question"),
    ),
    "share_answer": ("what the answer alone carries", partial(_share, part="answer")),
    "share_tested": ("what needs the key words", partial(_share, part=NEEDS_QUESTION)),
    "share_random": (
        "what needs random words",
        partial(_share, part=NEEDS_QUESTION, intervention="random"),
    ),
    "lowest_delta_p": ("the lowest Q-Anchored ΔP", _lowest_delta_p),
}
"""What is compared: its words, and its number on a run's dataset. Parts are ratios on one scale, so that runs with
different AUCs can be compared; ΔP is in points."""


def trained_runs(runs: Sequence[Findings]) -> list[Findings]:
    """Those without random weights, the smallest model first."""
    return sorted(
        (run for run in runs if not run.random_weights), key=lambda run: run.parameters
    )


def along(runs: Sequence[Findings]) -> str:
    """What changes from the first run to the last."""
    sizes = [run.parameters for run in trained_runs(runs)]
    if sizes[0] > 0 and sizes[-1] >= TWO_SIZES * sizes[0]:
        return "with size"
    return "from run to run" if sizes[0] == sizes[-1] > 0 else "from model to model"


def read_across(runs: Sequence[Findings]) -> list[Reading]:
    """All readings across runs: the mean over the datasets that all of them have, and each dataset."""
    trained = trained_runs(runs)
    if len(trained) < 2:
        return []
    datasets = [
        name
        for name in trained[0].datasets
        if all(name in run.datasets for run in trained)
    ]
    readings = []
    for name in QUANTITIES:
        numbers: dict[str | None, list[Estimate]] = {
            dataset: _values(trained, name, dataset) for dataset in datasets
        }
        if len(datasets) > 1:
            measured = [values for values in numbers.values() if values]
            numbers = {
                None: [mean_of(values) for values in zip(*measured, strict=True)],
                **numbers,
            }
        first = next(iter(numbers), None)
        readings += [
            _change_reading(trained, name, dataset, values, dataset == first)
            for dataset, values in numbers.items()
        ]
    return readings


def _values(runs: Sequence[Findings], quantity: str, dataset: str) -> list[Estimate]:
    """The number of every run; nothing where one run has none with an interval."""
    measured = [QUANTITIES[quantity][1](run, dataset) for run in runs]
    quoted = [
        value
        for value in measured
        if value and math.isfinite(value.value) and has_interval(value)
    ]
    return quoted if len(quoted) == len(runs) else []


def _change_reading(
    runs: Sequence[Findings],
    name: str,
    dataset: str | None,
    values: Sequence[Estimate],
    key: bool,
) -> Reading:
    noun, in_points, where = QUANTITIES[name][0], name == "lowest_delta_p", along(runs)
    change: Estimate | None = None
    verdict: Verdict = "not measured"
    sentence, numbers = (
        f"It is unclear whether {noun} changes {where}",
        "not measured in every run",
    )
    if values:
        digits, scale, sign = (1, 1.0, "") if in_points else (0, 100.0, "%")
        change = difference_of(values[-1], values[0])
        back = -1 if change.value >= 0 else 1
        steps = [difference_of(after, before) for before, after in pairwise(values)]
        turned = any(
            step.ci_low > 0 if back > 0 else step.ci_high < 0 for step in steps
        )
        limit = MIN_TROUGH if in_points else NEGLIGIBLE_SHARE
        verdict = "yes" if change.ci_low > 0 or change.ci_high < 0 else "inconclusive"
        if turned or (change.ci_low > -limit and change.ci_high < limit):
            verdict = "no"
        pairs = zip(runs, values, strict=True)
        shown = ", ".join(
            f"{number(scale * value.value, digits)}{sign} for {run.model}"
            for run, value in pairs
        )
        numbers = f"change {estimate(change, digits, scale, sign)}: {shown}"
        if verdict == "no":
            sentence = f"{capitalised(noun)} {'goes up and down' if turned else 'hardly changes'} {where}"
        elif verdict == "yes":
            sentence = f"{capitalised(noun)} {'decreases' if back > 0 else 'increases'} {where}"
    return Reading(
        id=f"across:{dataset or 'all datasets'}:{name}",
        claim=f"across:{name}",
        topic=noun,
        statement=f"{noun} changes {where}",
        sentence=sentence,
        numbers=numbers,
        estimate=change,
        verdict=verdict,
        unit=POINTS if in_points else EVIDENCE,
        subject=display_name(dataset) if dataset else "Mean of all datasets",
        model=", ".join(run.model for run in runs),
        dataset=dataset,
        site=" and ".join(dict.fromkeys(run.site for run in runs)),
        position=" and ".join(dict.fromkeys(run.position for run in runs)),
        scope="models",
        key=key,
    )


# Claims

PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
"""The datasets of the charts that were described."""


@dataclass(frozen=True)
class Claim:
    """One sentence about a ΔP chart that can be computed."""

    text: str
    says: str
    """The descriptions that say so, by number; 1–3 describe Llama-3.2, 4 and 5 Qwen3."""
    against: str
    measure: Callable[[SampledCurve, SampledCurve], Estimate]
    """A number of a dataset's Q-Anchored and A-Anchored curve."""
    over: float = -math.inf
    under: float = math.inf
    unit: str = POINTS
    dataset: str | None = None
    """Of a claim that this dataset's number is below those of all others; all four of the paper are needed."""


def _late(curve: SampledCurve, thirds: int = 1) -> SampledCurve:
    """The curve from one or two thirds of the depth on."""
    first = thirds * round((curve.n_layers - 1) / 3)
    return SampledCurve(curve.value[first:], curve.samples[:, first:], curve.n)


def _mean(curve: SampledCurve) -> Estimate:
    return curve.estimate(curve.value.mean(), curve.whole.mean(axis=1))


_FLAT, _FALL, _NEAR, _RISE = (
    f"{limit:.0f} points" for limit in (STAYS_FLAT, MIN_TROUGH, NEAR_ZERO, MIN_RECOVERY)
)
_LOWEST = {
    "popqa": ("2, 3, 5", "1, 4"),
    "triviaqa": ("2", "1, 3–5"),
    "hotpotqa": ("4", "1–3, 5"),
    "nq": ("1", "2–5"),
}
"""Which dataset's Q curve is the lowest: who says so, who says otherwise."""
CLAIMS: dict[str, Claim] = {
    "groups_apart": Claim(
        "From a third of the depth on, Q is below A at every layer",
        "2–5",
        "1",
        lambda q, a: shape.trough(_late(a - q)).depth,
        over=0.0,
    ),
    "q_above_a_late": Claim(
        "In the last third of the layers, Q is above A",
        "1",
        "2–5",
        lambda q, a: _mean(_late(q - a, 2)),
        over=0.0,
    ),
    "a_near_zero": Claim(
        f"A stays within {_FLAT} of zero at every layer",
        "2, 4, 5",
        "1, 3",
        lambda q, a: shape.range_within(a),
        under=STAYS_FLAT,
    ),
    "a_falls": Claim(
        "A falls too, to −20 points or lower",
        "1, 3",
        "2, 4, 5",
        lambda q, a: shape.trough(a).depth,
        under=-20.0,
    ),
    "starts_at_zero": Claim(
        f"Q starts within {_NEAR} of zero",
        "1, 3–5",
        "2",
        lambda q, a: shape.first(q),
        -NEAR_ZERO,
        NEAR_ZERO,
    ),
    "starts_low": Claim(
        "Q starts between −10 and −20 points",
        "2",
        "1, 3–5",
        lambda q, a: shape.first(q),
        -20.0,
        -10.0,
    ),
    "trough_in_the_middle": Claim(
        "Q is lowest in the middle third of the layers",
        "2",
        "3–5",
        lambda q, a: shape.trough(q).relative,
        *MIDDLE_THIRD,
        unit="share of the depth",
    ),
    "recovers": Claim(
        f"Q recovers from its lowest point by more than {_RISE}",
        "2, 4",
        "3, 5",
        lambda q, a: shape.recovery(q),
        over=MIN_RECOVERY,
    ),
    "falls_on": Claim(
        f"Q falls by more than {_FALL} from the middle layer to the last",
        "3, 5",
        "2, 4",
        lambda q, a: shape.last(q.relative_to((q.n_layers - 1) // 2)),
        under=-MIN_TROUGH,
    ),
} | {
    f"{name}_lowest": Claim(
        f"From a third of the depth on, the Q curve of {display_name(name)} is the lowest on average",
        *sources,
        lambda q, a: _mean(_late(q)),
        under=0.0,
        dataset=name,
    )
    for name, sources in _LOWEST.items()
}
"""Every claim, in the order of the page; Q and A are the Q-Anchored and the A-Anchored curve."""


def check_claims(runs: Sequence[Findings]) -> list[Reading]:
    """Every claim under the paper's rule; runs with random weights have no say."""
    trained = [run for run in runs if not run.random_weights]
    models = ", ".join(run.model for run in runs)
    return [
        _claim_reading(name, claim, trained, models) for name, claim in CLAIMS.items()
    ]


def _claim_numbers(
    claim: Claim, runs: Sequence[Findings]
) -> Iterator[tuple[str, Estimate]]:
    """The claim's number on every dataset of every run, with what it is of."""
    for run in runs:
        curves = {
            name: (
                sampled_curve(run, name, Q_ANCHORED),
                sampled_curve(run, name, A_ANCHORED),
            )
            for name in run.datasets
        }
        values = {
            name: claim.measure(q, a)
            for name, (q, a) in curves.items()
            if q is not None and a is not None
        }
        if claim.dataset is None:
            yield from (
                (f"{display_name(name)}, {run.model}", value)
                for name, value in values.items()
            )
        elif set(PAPER) <= set(values):
            for other in (name for name in PAPER if name != claim.dataset):
                gap = difference_of(values[claim.dataset], values[other])
                yield f"against {display_name(other)}, {run.model}", gap


def _claim_reading(
    name: str, claim: Claim, runs: Sequence[Findings], models: str
) -> Reading:
    judged = [
        (
            inside(value, claim.over, claim.under)
            if has_interval(value)
            else "inconclusive",
            whose,
            value,
        )
        for whose, value in _claim_numbers(claim, runs)
    ]
    worst = min(judged, key=lambda part: WORST_FIRST.index(part[0]), default=None)
    verdict: Verdict = worst[0] if worst else "not measured"
    decided = [part for part in judged if part[0] == verdict]
    numbers = (
        f"{estimate(worst[2], 1)} ({worst[1]}); {len(decided)} of {len(judged)}"
        if worst
        else "needs other runs"
    )
    return Reading(
        id=f"claim:{name}:plain",
        claim=name,
        topic=f"said by {claim.says}, denied by {claim.against}",
        statement=claim.text,
        sentence=f"{claim.text}: {verdict}",
        numbers=numbers,
        estimate=worst[2] if worst else None,
        verdict=verdict,
        unit=claim.unit,
        subject=models,
        model=models,
        scope="claim",
        more={"source": claim.says, "sources_against": claim.against},
    )
