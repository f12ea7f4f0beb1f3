"""All claims on the runs at hand, under the paper's rule and with the common shift taken out."""

from collections.abc import Sequence
from typing import get_args

from anchorscope.report.across.run_curves import RunCurves
from anchorscope.report.claims.catalogue import CLAIMS
from anchorscope.report.claims.claim import RANDOM_WEIGHTS, Claim, Judged, Judgement, Part, missing, worst
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.verdicts import Verdict


def judge(runs: Sequence[Findings], claims: Sequence[Claim] = CLAIMS) -> list[Judged]:
    """Every claim, or some, judged on one run or several. Runs with random weights have no say."""
    real = [run for run in runs if not run.random_weights]
    models = tuple(run.model for run in real or runs)
    places = [" and ".join(dict.fromkeys(found)) for found in ([run.site for run in runs], [r.position for r in runs])]
    curves = {rule: [RunCurves(run, rule) for run in real] for rule in ("plain", "corrected")}
    return [
        Judged(claim, models, _judgement(claim, curves["plain"]), _judgement(claim, curves["corrected"]), *places)
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
    return f"{_tally(parts)}; {sentence}" if len(parts) > 1 else sentence


def _tally(parts: Sequence[Part]) -> str:
    verdicts = [part.verdict for part in parts]
    counted = [f"{verdict} for {verdicts.count(verdict)}" for verdict in get_args(Verdict) if verdict in verdicts]
    return f"{counted[0]} of {len(verdicts)}" + "".join(f", {rest}" for rest in counted[1:])
