"""Every claim put to the runs at hand: the verdicts, as a table for readers and as records for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.earlier_readings.claim import RANDOM_WEIGHTS, Claim, Part, missing, worst
from anchorscope.report.earlier_readings.claims import CLAIMS, LLAMA, QWEN, READINGS
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.statements.statement import record
from anchorscope.report.verdicts import Verdict
from anchorscope.report.wording import Table
from anchorscope.stats.estimate import Estimate


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim under one rule."""

    verdict: Verdict
    found: Estimate | None
    """The number of the part that speaks most against the claim."""
    told: str
    """What was found, with that number, as a phrase."""
    reason: str
    """Why it is undecided; else empty."""
    parts: tuple[Part, ...]
    """All that it rests on."""
    unit: str
    """Of the number."""
    names_first: bool
    """Whether the phrase begins with a name, which is written as it is."""

    @property
    def sentence(self) -> str:
        """What was found, as a sentence of its own."""
        return f"{self.told if self.names_first else self.told[:1].upper() + self.told[1:]}."


@dataclass(frozen=True)
class Judged:
    """A claim with its verdicts on some runs."""

    claim: Claim
    runs: tuple[Findings, ...]
    plain: Judgement
    """As the charts that were read are drawn."""
    corrected: Judgement
    """With the shift taken out that the cut gives to every item."""


def judge(runs: Sequence[Findings], claims: Sequence[Claim] = CLAIMS) -> list[Judged]:
    """Every claim, or some, judged on one run or several. Runs with random weights have no say."""
    real = tuple(run for run in runs if not run.random_weights)
    plain, corrected = ([RunCurves(run, rule) for run in real] for rule in ("plain", "corrected"))
    return [
        Judged(claim, real or tuple(runs), _judgement(claim, plain), _judgement(claim, corrected)) for claim in claims
    ]


def _judgement(claim: Claim, runs: Sequence[RunCurves]) -> Judgement:
    parts = claim.check.ask(runs) if runs else [missing(RANDOM_WEIGHTS)]
    decisive = worst(parts)
    reason = decisive.reason if decisive.verdict == "undecided" else ""
    whose = _whose(decisive, several_models=len(runs) > 1)
    told, names_first = _told(parts, decisive, reason, whose), len(parts) == 1 and bool(whose)
    return Judgement(decisive.verdict, decisive.found, told, reason, tuple(parts), decisive.unit, names_first)


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
    if len(parts) == 1:
        return sentence
    verdicts = [part.verdict for part in parts]
    counted = [f"{verdict} for {verdicts.count(verdict)}" for verdict in get_args(Verdict) if verdict in verdicts]
    return f"{counted[0]} of {len(verdicts)}{''.join(f', {rest}' for rest in counted[1:])}; {sentence}"


def claims_table(judged: Sequence[Judged]) -> Table:
    """Who says it, who says otherwise, and what the numbers say: by the paper's rule, and the shift taken out."""
    head = ("claim", "says so", "says otherwise", "plain rule", "corrected rule", "what was found, plain rule")
    rows = tuple(
        (
            one.claim.text,
            _sources(one.claim.says),
            _sources(one.claim.against),
            one.plain.verdict,
            one.corrected.verdict,
            one.plain.sentence,
        )
        for one in judged
    )
    return Table(head, rows, len(head))


def _sources(readings: Sequence[int]) -> str:
    """For a table: "1, 3 (Llama), 5 (Qwen3)"; a dash for none."""
    parts = []
    for family, name in ((LLAMA, "Llama"), (QWEN, "Qwen3")):
        mine = [str(reading) for reading in readings if READINGS[reading] == family]
        parts += [f"{', '.join(mine)} ({name})"] if mine else []
    return ", ".join(parts) or "–"


def claims_records(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Every claim under both rules, with the keys that readings have and the sources."""
    rules = [(one, {"plain": one.plain, "corrected": one.corrected}) for one in judged]
    return [_record(one, rule, found) for one, by_rule in rules for rule, found in by_rule.items()]


def _record(one: Judged, rule: str, found: Judgement) -> dict[str, Any]:
    names = {key: dict.fromkeys(getattr(run, key) for run in one.runs) for key in ("model", "site", "position")}
    datasets = {part.dataset for part in found.parts if part.dataset}
    who = ", ".join(names["model"])
    made = record(
        id=f"claim:{one.claim.id}:{rule}",
        subject=f"{who}, {RULES[rule]}",
        statement=one.claim.text.rstrip("."),
        numbers=found.told,
        found=found.found,
        verdict=found.verdict,
        claim=one.claim.id,
        model=who,
        dataset=datasets.pop() if len(datasets) == 1 else None,
        site=" and ".join(names["site"]),
        position=" and ".join(names["position"]),
        assignment=rule,
        scope="claim",
        unit=found.unit,
    )
    sources = {"source": one.claim.says, "sources_against": one.claim.against}
    return made | {
        "reason": found.reason,
        "needs": one.claim.check.needs,
        "opposes": list(one.claim.opposes),
        **{key: [f"reading {name} ({READINGS[name]})" for name in names] for key, names in sources.items()},
    }
