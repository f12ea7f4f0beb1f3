"""Saliency: how much the probe's verdict hangs on the attention that the answer pays to the question's exact tokens.

S = Σ |A · ∂L/∂A|, over all layers up to the item's own reference layer l*, all heads, all queries of the answer (from
its first token to the one that is read) and all keys in E_Q (`question_to_answer`). A is the attention weight after the
softmax; the probe is that of the item's own fold, which never saw its group. `share` is the same sum over the keys in
E_Q divided by that over all keys.

L comes in two variants. `log_odds` is the probe's log-odds z. `loss` is its cross-entropy with the true label, as in
the paper. They differ by one factor: |∂ loss/∂z| is the probability of the wrong label, so that S(loss) = P(wrong) ·
S(log_odds), and `share` is the same for both. An item of which the probe is sure has a loss near zero and thus S near
zero, whatever its pathway: a mode near zero can come from that factor alone. `confidence_variance_share` tells how much
of the spread of log10 S(loss) does.

S spans orders of magnitude, so means, the dip test and the bimodality coefficient are of log10 S. Folds have their own
probes and depths, which can make modes by themselves: the `…_within_folds` numbers are of log10 S minus its fold's
median.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.engine.saliency import ALL
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.draws import Draws, ratio
from anchorscope.evidence.experiments.compare import (
    FEW,
    METHOD,
    Column,
    Compared,
    compare_pathways,
    estimate_of,
    explained_by,
    of_truth,
    separation,
    too_few,
)
from anchorscope.evidence.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.evidence.pathways import GROUPS, at_reference
from anchorscope.execute.run_passes import run_saliency
from anchorscope.plan.passes import plan_saliency
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.modes import SAMPLES, coefficient_of_powers, dip, dip_p_value, dips

Floats = NDArray[np.floating]

LOSS, LOG_ODDS = "loss", "log_odds"
"""What is differentiated: the probe's cross-entropy with the true label, or its log-odds."""
_QUESTION = "question"  # E_Q, among the sets of keys
Bools = NDArray[np.bool_]
DRAWS = 200
"""Draws behind the standard error of a dip; each is as much work as a sample of its own."""
_DIP = (
    f"p by {SAMPLES:,} uniform samples of as many independent values; interval ± 1.96 standard errors, {METHOD} "
    f"({DRAWS} draws)"
)
_LARGEST_DIP = 0.25  # of any distribution
_Z = 1.959964


def run(inputs: ExperimentInputs) -> Found:
    """Saliency of each item, its means per pathway, how well it tells the pathways apart, and its modes."""
    items = inputs.some_items()
    if len(items) < FEW:
        return Found(missing=(f"saliency: only {len(items)} items, {FEW} needed",))
    flow = measure_flow(inputs, items)
    return analyse(inputs, flow)


@dataclass(frozen=True)
class Flow:
    """Saliency of the used items; NaN of those that were not run."""

    log_odds: Floats
    """S from E_Q to the answer, of the probe's log-odds."""
    share: Floats
    """The part that comes from E_Q of all that flows into the answer; NaN where nothing does."""
    log_wrong: Floats
    """Natural logarithm of the probability that the probe gives to the wrong label."""

    @property
    def loss(self) -> Floats:
        """S of the probe's cross-entropy with the true label."""
        return self.log_odds * np.exp(self.log_wrong)


def measure_flow(inputs: ExperimentInputs, items: NDArray[np.int64]) -> Flow:
    """One pass with gradients over some of the items, as large in memory as the budget allows."""
    position, site = inputs.headline
    some = [inputs.used_items[item] for item in items]
    reference, folds = inputs.reference[items], inputs.measured.folds[items]
    full = inputs.measured.probe("full")
    work = plan_saliency(
        inputs.planner,
        sequences=[item.sequence(inputs.setting.positions[position : position + 1]) for item in some],
        prefix=inputs.prefix,
        keys={_QUESTION: tuple(item.located.question_tokens for item in some)},
        site=SITES[site],
        layers=[int(layer) for layer in reference],
        weight=inputs.probes.weight[full, folds, reference],
        bias=inputs.probes.bias[full, folds, reference],
    )
    found = run_saliency(inputs.executor, work, inputs.progress)
    question, everything = (found.of(name)[:, 0].sum(axis=(1, 2), dtype=np.float64) for name in (_QUESTION, ALL))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(everything > 0, question / everything, np.nan)
    return Flow(_spread(question, items, inputs.n), _spread(share, items, inputs.n), _log_wrong(inputs))


def _spread(values: Floats, items: NDArray[np.int64], n: int) -> Floats:
    found = np.full(n, np.nan)
    found[items] = values
    return found


def _log_wrong(inputs: ExperimentInputs) -> Floats:
    full = inputs.measured.probe("full")
    clean = at_reference(inputs.measured.before[full], inputs.measured.reference[full], inputs.measured.folds)
    return -np.logaddexp(0.0, np.where(inputs.measured.labels, clean, -clean).astype(float))


def analyse(inputs: ExperimentInputs, flow: Flow) -> Found:
    """Everything that is said of measured saliency."""
    sums = {LOSS: flow.loss, LOG_ODDS: flow.log_odds}
    logs = {variant: _log10(values) for variant, values in sums.items()}
    method = f"{METHOD}, mean of log10"
    columns = [Column("log10_question_to_answer", values, name, method=method) for name, values in logs.items()]
    compared = compare_pathways(inputs, [*columns, Column("share", flow.share, LOG_ODDS)])
    for variant, values in sums.items():
        compared.add(separation(inputs, "auc", variant, values))
    compared.add(separation(inputs, "auc_share", LOG_ODDS, flow.share))
    for variant, values in logs.items():
        compared.add(bimodality(inputs, variant, values))
    confidence = flow.log_wrong / np.log(10)
    compared.add(explained_by(inputs, "confidence_variance_share", LOSS, logs[LOSS], confidence))
    return Found(
        statistics=tuple(compared.statistics),
        values=(
            *(_item_values("question_to_answer", variant, values) for variant, values in sums.items()),
            _item_values("share", LOG_ODDS, flow.share),
        ),
        missing=(*_zeros(flow), *compared.lines()),
    )


def _log10(values: Floats) -> Floats:
    """NaN where nothing flows: zero has no logarithm."""
    return np.log10(np.where(values > 0, values, np.nan))


def _zeros(flow: Flow) -> list[str]:
    zeros, n = int((flow.log_odds == 0).sum()), int(np.isfinite(flow.log_odds).sum())
    if not zeros:
        return []
    return [
        f"log10_question_to_answer: in {zeros} of {n} items exactly nothing flows from the exact tokens to the "
        f"answer (a sliding window hides them, for instance); they have no logarithm and are left out"
    ]


def _item_values(quantity: str, variant: str, values: Floats) -> ItemValues:
    known = np.flatnonzero(np.isfinite(values))
    return ItemValues(quantity, known, values[known], variant)


def bimodality(inputs: ExperimentInputs, variant: str, values: Floats) -> Compared:
    """`dip` and `bimodality_coefficient` of values [item] as they are, and minus their fold's median; NaN: left out.

    A resample's dip is larger than the sample's, because its repeated values are steps; so the interval is made from
    the standard error and not from percentiles. The coefficient is 5/9 for a uniform distribution.
    """
    result = Compared()
    kinds = {"": values, "_within_folds": within_folds(values, inputs.measured.folds)}
    for part in _parts(inputs):
        items = np.flatnonzero(part.members & np.isfinite(values))
        if len(items) < FEW:
            reason = too_few(len(items), part.group, part.assignment, part.truth)
            result.missing.extend((quantity, reason) for quantity in ("dip", "bimodality_coefficient"))
            continue
        draws = inputs.draws.take(items)
        for ending, numbers in kinds.items():
            found, p_value = _dip(numbers[items], draws, inputs.setting.seed)
            result.statistics.append(part.row(f"dip{ending}", found, variant, p_value))
            coefficient = _coefficient(numbers[items], draws)
            if np.isfinite(coefficient.value):  # not where all values are the same
                result.statistics.append(part.row(f"bimodality_coefficient{ending}", coefficient, variant))
    return result


def within_folds(values: Floats, folds: NDArray[np.int64]) -> Floats:
    """Values minus the median of their fold."""
    found = np.full(len(values), np.nan)
    for fold in np.unique(folds[np.isfinite(values)]):
        inside = (folds == fold) & np.isfinite(values)
        found[inside] = values[inside] - np.median(values[inside])
    return found


@dataclass(frozen=True)
class _Part:
    """Some of the used items."""

    members: Bools
    truth: str
    assignment: str | None = None
    group: str | None = None

    def row(self, quantity: str, estimate: Estimate, variant: str, p_value: float | None = None) -> Statistic:
        """A statistic of this part."""
        return Statistic(
            quantity, estimate, variant, assignment=self.assignment, group=self.group, truth=self.truth, p_value=p_value
        )


def _parts(inputs: ExperimentInputs) -> list[_Part]:
    """All items, by truth; and each pathway."""
    found = [_Part(of_truth(inputs.measured.labels, truth), truth) for truth in TRUTHS]
    for assignment, calls in inputs.calls.items():
        found += [_Part(calls.members(group), "all", assignment, group) for group in GROUPS]
    return found


def _dip(values: Floats, draws: Draws, seed: int) -> tuple[Estimate, float]:
    found, n = dip(values), len(values)
    counts = draws.counts[:, 1 : 1 + DRAWS].cpu().numpy().T
    error = float(np.nanstd(dips(values, counts)))
    low, high = max(0.0, found - _Z * error), min(_LARGEST_DIP, found + _Z * error)
    return Estimate(found, low, high, n, _DIP), dip_p_value(found, n, seed)


def _coefficient(values: Floats, draws: Draws) -> Estimate:
    centred = values - values.mean()
    sums = draws.sums(np.stack([centred**power for power in (1, 2, 3, 4)], axis=1))
    n = draws.numbers()
    powers = ratio(sums, n.expand_as(sums)).cpu().numpy()
    samples = coefficient_of_powers(powers, n.cpu().numpy())
    return estimate_of(torch.from_numpy(samples), len(values))


EXPERIMENT = Experiment(
    "saliency", "how much the probe's verdict hangs on the answer's attention to the question (gradients)", run
)
