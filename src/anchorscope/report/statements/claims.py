"""The claims of five earlier readings, in the order in which the page shows them, judged on the runs at hand."""

from collections.abc import Sequence
from typing import Any, get_args

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.statements import claim_checks as checks
from anchorscope.report.statements import claim_sizes
from anchorscope.report.statements.claim import RANDOM_WEIGHTS, Claim, Judged, Judgement, Part, missing, worst
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.statements.statement import record
from anchorscope.report.verdicts import Verdict
from anchorscope.report.wording import Table

LLAMA, QWEN = "Llama-3.2 1B and 3B", "Qwen3 8B and 32B"
READINGS = {1: LLAMA, 2: LLAMA, 3: LLAMA, 4: QWEN, 5: QWEN}
"""What each reading looked at."""


def source_name(reading: int) -> str:
    """For example "reading 1 (Llama-3.2 1B and 3B)"."""
    return f"reading {reading} ({READINGS[reading]})"


def short_sources(readings: Sequence[int]) -> str:
    """For a table: "1, 3 (Llama), 5 (Qwen3)"; a dash for none."""
    parts = []
    for family, name in ((LLAMA, "Llama"), (QWEN, "Qwen3")):
        mine = [str(reading) for reading in readings if READINGS[reading] == family]
        if mine:
            parts.append(f"{', '.join(mine)} ({name})")
    return ", ".join(parts) or "–"


_LOWEST = tuple(f"{name}_lowest" for name in checks.PAPER)


def _lowest(dataset: str, shown: str, says: tuple[int, ...], against: tuple[int, ...]) -> Claim:
    mine = f"{dataset}_lowest"
    text = f"Of the Q-Anchored curves that of {shown} lies lowest, in the mean from a third of the depth on."
    rivals = tuple(name for name in _LOWEST if name != mine)
    return Claim(mine, text, says, against, "several datasets", checks.lies_lowest(dataset), opposes=rivals)


_OF_CURVES = (
    Claim("groups_apart", "From a third of the depth on, Q-Anchored lies below A-Anchored at every layer.",
          (2, 3, 4, 5), (1,), "one model", checks.apart, opposes=("q_above_a_late",)),
    Claim("q_above_a_late", "In the last third of the layers Q-Anchored lies above A-Anchored.",
          (1,), (2, 3, 4, 5), "one model", checks.above_late, opposes=("groups_apart",)),
    Claim("a_near_zero", "The A-Anchored curve stays within 10 points of zero at every layer.",
          (2, 4, 5), (1, 3), "one model", checks.near_zero, opposes=("a_falls",)),
    Claim("a_falls", "The A-Anchored curve falls too, to −20 points or lower.",
          (1, 3), (2, 4, 5), "one model", checks.a_falls, opposes=("a_near_zero",)),
    Claim("starts_at_zero", "The Q-Anchored curve begins near zero: within 5 points at the first layer.",
          (1, 3, 4, 5), (2,), "one model", checks.starts_at_zero, opposes=("starts_low",)),
    Claim("starts_low", "The Q-Anchored curve begins low already: between −10 and −20 points at the first layer.",
          (2,), (1, 3, 4, 5), "one model", checks.starts_low, opposes=("starts_at_zero",)),
    Claim("falls_early",
          "The Q-Anchored curve falls most in the first third of the layers: by 5 points more than in either other.",
          (3, 4), (1, 5), "one model", checks.falls_early),
    Claim("trough_in_the_middle", "The Q-Anchored curve is lowest in the middle third of the layers.",
          (2,), (3, 4, 5), "one model", checks.trough_in_the_middle, "share of the depth"),
    Claim("recovers", "The Q-Anchored curve comes back from its lowest point by more than 10 points.",
          (2, 4), (3, 5), "one model", checks.recovers, opposes=("stays_low", "falls_on")),
    Claim("stays_low", "The Q-Anchored curve stays low: level from the middle layer on, back by less than 10 points.",
          (3,), (2, 4, 5), "one model", checks.stays_low, opposes=("recovers", "falls_on")),
    Claim("falls_on", "The Q-Anchored curve falls to the end: by more than 10 points from the middle layer on.",
          (3, 5), (2, 4), "one model", checks.falls_on, opposes=("recovers", "stays_low")),
)  # fmt: skip

_OF_DATASETS = (
    _lowest("popqa", "PopQA", (2, 3, 5), (1, 4)),
    _lowest("triviaqa", "TriviaQA", (2,), (1, 3, 4, 5)),
    _lowest("hotpotqa", "HotpotQA", (4,), (1, 2, 3, 5)),
    _lowest("nq", "NQ", (1,), (2, 3, 4, 5)),
    Claim("nq_most_volatile", "Of the Q-Anchored curves that of NQ changes most from layer to layer.",
          (1, 4), (), "several datasets", checks.most_volatile("nq")),
    Claim("datasets_similar", "The Q-Anchored curves of the datasets are alike: nowhere more than 30 points apart.",
          (2, 5), (1, 4), "several datasets", checks.similar),
    Claim("order_kept", "The datasets' Q-Anchored curves have one order and keep it: none change places by 5 points.",
          (2, 3), (5,), "several datasets", checks.order_kept),
    Claim("datasets_converge", "The datasets' Q-Anchored curves are closer together at the end than in the middle.",
          (5,), (3,), "several datasets", checks.converge),
    Claim("anchoring_over_dataset",
          "The group matters more than the dataset: Q and A lie farther apart than the datasets do.",
          (2, 5), (), "several datasets", checks.anchoring_over_dataset),
)  # fmt: skip

_OF_SIZES = (
    Claim("larger_deeper", "The larger model's Q-Anchored curves reach a deeper trough.",
          (1, 2, 3, 4), (), "two model sizes", claim_sizes.deeper),
    Claim("larger_a_quarter_greater", "The larger model's Q-Anchored curves reach 20 to 30 % deeper below zero.",
          (1, 2), (3, 4), "two model sizes", claim_sizes.a_quarter_greater, "ratio"),
    Claim("larger_longer_decline", "In the larger model the decline takes more layers.",
          (2, 3, 5), (), "two model sizes", claim_sizes.longer_decline, "layers"),
    Claim("larger_same_rate", "Both sizes lose about as much per layer, within a quarter.",
          (5,), (), "two model sizes", claim_sizes.same_rate, "ratio"),
    Claim("larger_more_volatile", "The larger model's Q-Anchored curves are more jagged from layer to layer.",
          (1, 4), (), "two model sizes", claim_sizes.more_volatile, "ratio"),
    Claim("larger_tighter_end", "The larger model's datasets end closer together.",
          (5,), (2,), "two model sizes", claim_sizes.tighter_end),
)  # fmt: skip

CLAIMS: tuple[Claim, ...] = (*_OF_CURVES, *_OF_DATASETS, *_OF_SIZES)
"""Every claim."""


def judge(runs: Sequence[Findings], claims: Sequence[Claim] = CLAIMS) -> list[Judged]:
    """Every claim, or some, judged on one run or several. Runs with random weights have no say."""
    real = [run for run in runs if not run.random_weights]
    models = tuple(run.model for run in real or runs)
    sites_and_positions = [
        " and ".join(dict.fromkeys(found)) for found in ([run.site for run in runs], [r.position for r in runs])
    ]
    curves = {rule: [RunCurves(run, rule) for run in real] for rule in ("plain", "corrected")}
    return [
        Judged(
            claim,
            models,
            _judgement(claim, curves["plain"]),
            _judgement(claim, curves["corrected"]),
            *sites_and_positions,
        )
        for claim in claims
    ]


def _judgement(claim: Claim, runs: Sequence[RunCurves]) -> Judgement:
    parts = claim.check(runs) if runs else [missing(RANDOM_WEIGHTS)]
    decisive = worst(parts)
    reason = decisive.reason if decisive.verdict == "undecided" else ""
    whose = _whose(decisive, several_models=len(runs) > 1)
    told, unit = _told(parts, decisive, reason, whose), decisive.unit or claim.unit
    names_first = len(parts) == 1 and bool(whose)
    return Judgement(decisive.verdict, decisive.found, told, reason, tuple(parts), unit, names_first)


def _whose(part: Part, several_models: bool) -> str:
    """What a part is about; the model only where there are several."""
    model = part.model if several_models else ""
    dataset = display_name(part.dataset)
    return f"{dataset} ({model})" if dataset and model else dataset or model


def _told(parts: Sequence[Part], decisive: Part, reason: str, whose: str) -> str:
    """How many parts agree, and the number of the one that speaks most against the claim."""
    said = "; ".join(filter(None, (decisive.words, reason)))
    if len(parts) > 1 and not any(part.words for part in parts):  # nothing was measured, for one reason or several
        return "; ".join(dict.fromkeys(part.reason for part in parts))
    sentence = ": ".join(filter(None, (whose, said)))
    return f"{_tally_parts(parts)}; {sentence}" if len(parts) > 1 else sentence


def _tally_parts(parts: Sequence[Part]) -> str:
    verdicts = [part.verdict for part in parts]
    counted = [f"{verdict} for {verdicts.count(verdict)}" for verdict in get_args(Verdict) if verdict in verdicts]
    return f"{counted[0]} of {len(verdicts)}" + "".join(f", {rest}" for rest in counted[1:])


def claims_table(judged: Sequence[Judged]) -> Table:
    """Who says it, who says otherwise, and what the numbers say: by the paper's rule, and the shift taken out."""
    head = ("claim", "says so", "says otherwise", "verdict", "common shift taken out", "what was found")
    rows = tuple(
        (
            one.claim.text,
            short_sources(one.claim.says),
            short_sources(one.claim.against),
            one.plain.verdict,
            one.corrected.verdict,
            one.plain.sentence,
        )
        for one in judged
    )
    return Table(head, rows, len(head))


def claims_records(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Every claim under both rules, with the keys that readings have and the sources."""
    records = []
    for one in judged:
        for assignment, found in (("plain", one.plain), ("corrected", one.corrected)):
            who = ", ".join(one.models)
            datasets = list(dict.fromkeys(part.dataset for part in found.parts if part.dataset))
            records.append(
                record(
                    id=f"claim:{one.claim.id}:{assignment}",
                    subject=f"{who}, {RULES[assignment]}",
                    statement=one.claim.text.rstrip("."),
                    numbers=found.told,
                    found=found.found,
                    verdict=found.verdict,
                    claim=one.claim.id,
                    model=who,
                    dataset=datasets[0] if len(datasets) == 1 else None,
                    site=one.site,
                    position=one.position,
                    assignment=assignment,
                    scope="claim",
                    unit=found.unit,
                )
                | {
                    "reason": found.reason,
                    "needs": one.claim.needs,
                    "source": [source_name(reading) for reading in one.claim.says],
                    "sources_against": [source_name(reading) for reading in one.claim.against],
                    "opposes": list(one.claim.opposes),
                    "key": False,
                }
            )
    return records
