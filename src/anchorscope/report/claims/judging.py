"""All claims on the runs at hand, under the paper's rule and with the common shift taken out."""

from collections.abc import Sequence

from anchorscope.report.across.run_curves import RunCurves
from anchorscope.report.claims.catalogue import CLAIMS
from anchorscope.report.claims.claim import RANDOM_WEIGHTS, Claim, Judged, Judgement, Part, missing, worst
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name


def judge(runs: Sequence[Findings]) -> list[Judged]:
    """Every claim, judged on one run or several. Runs with random weights have no say."""
    real = [run for run in runs if not run.random_weights]
    models = tuple(run.model for run in real or runs)
    places = [" and ".join(dict.fromkeys(found)) for found in ([run.site for run in runs], [r.position for r in runs])]
    curves = {rule: [RunCurves(run, rule) for run in real] for rule in ("plain", "corrected")}
    return [
        Judged(claim, models, _judgement(claim, curves["plain"]), _judgement(claim, curves["corrected"]), *places)
        for claim in CLAIMS
    ]


def _judgement(claim: Claim, runs: Sequence[RunCurves]) -> Judgement:
    parts = claim.check(runs) if runs else [missing(RANDOM_WEIGHTS)]
    decisive = worst(parts)
    reason = decisive.reason if decisive.verdict == "undecided" else ""
    sentence = _sentence(parts, decisive, reason, several_models=len(runs) > 1)
    return Judgement(decisive.verdict, decisive.found, sentence, reason, tuple(parts))


def _sentence(parts: Sequence[Part], decisive: Part, reason: str, several_models: bool) -> str:
    """How many parts agree, and the number of the one that speaks most against the claim."""
    said = "; ".join(filter(None, (decisive.words, reason)))
    if len(parts) > 1 and not any(part.words for part in parts):  # nothing was measured, for one reason or several
        return _ended("; ".join(dict.fromkeys(part.reason for part in parts)))
    whose = display_name(decisive.dataset)
    if several_models and decisive.model:
        whose = f"{whose} ({decisive.model})" if whose else decisive.model
    sentence = ": ".join(filter(None, (whose, said)))
    return _ended(f"{_tally(parts)}; {sentence}" if len(parts) > 1 else sentence)


def _tally(parts: Sequence[Part]) -> str:
    verdicts = [part.verdict for part in parts]
    words = {"holds": "holds", "does not hold": "does not hold", "undecided": "undecided"}
    counted = [f"{words[verdict]} for {verdicts.count(verdict)}" for verdict in words if verdict in verdicts]
    return f"{counted[0]} of {len(verdicts)}" + "".join(f", {rest}" for rest in counted[1:])


def _ended(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:] + "."
