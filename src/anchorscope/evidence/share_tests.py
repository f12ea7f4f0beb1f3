"""What follows from the question share at the headline place and layer: tests, differences, features, single items."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.question_share import CLEAN, NONE, PERMUTED, ShareItems, Shares, permuted_labels
from anchorscope.evidence.share_features import features_of, taken_out
from anchorscope.evidence.share_nulls import RANDOM_WEIGHTS
from anchorscope.evidence.share_tables import ShareContext, headline_lost
from anchorscope.items import Item
from anchorscope.probes.folds import truth_strata
from anchorscope.question_share.clean_evidence import clean_evidence
from anchorscope.question_share.evidence import GROUPS, Lost, lost_evidence
from anchorscope.question_share.halves import make_halves
from anchorscope.question_share.intervals import ShareDraws
from anchorscope.question_share.posterior import (
    LEAST_GAIN,
    ItemShares,
    Line,
    calls,
    fit_line,
    held_out_mixture,
    item_shares,
)
from anchorscope.schema import SHARE_TEST_SCHEMA
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import percentile_interval

Floats = NDArray[np.floating]
SIGNIFICANT = 0.05
"""p below this opens the gate to calls of single items."""
_GOOD_WIDTH = 0.1  # either side of a share: what `minimum_n` is needed for


@dataclass(frozen=True)
class ShareTest:
    """One row of question_share_tests.csv."""

    quantity: str
    value: float
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None
    intervention: str | None = KNOCKOUT
    group: str | None = None
    n: int | None = None
    method: str = "half splits, bootstrap over groups"


@dataclass(frozen=True)
class TestedShare:
    """Everything at the headline."""

    tests: list[ShareTest]
    items: ItemShares
    calls: list[str]


@dataclass(frozen=True)
class HeadlineStates:
    """Principal states at the headline place and layer, [1, item, direction] each."""

    clean: Tensor
    cut: Tensor


def headline_states(principal: Mapping[str, Tensor], place: int, layer: int) -> HeadlineStates:
    """Those of the clean run and of the knockout."""
    return HeadlineStates(*(principal[name][place, layer][None] for name in (CLEAN, KNOCKOUT)))


def tested_share(
    shares: Shares, layer: int, draws: ShareDraws, items: ShareItems, used: Sequence[Item], confidence: Floats,
    states: HeadlineStates, n_directions: int, device: str | torch.device,
) -> TestedShare:  # fmt: skip
    """All tests of one dataset."""
    found = headline_lost(shares, KNOCKOUT, layer)
    random = [Lost(*(part[layer : layer + 1] for part in one)) for one in shares.random_cuts()]
    everyone = draws.shares(found, 0)[0]
    by_chance = np.mean([draws.shares(one, 0)[0] for one in random], axis=0)
    n = len(items.labels)
    beyond_zero = _beyond_zero(found.lost[0], items.groups)
    tests = [
        _difference("share_above_random", everyone - by_chance, n),
        ShareTest("share_above_zero", *beyond_zero[:1], p_value=beyond_zero[1], n=n, method="T over groups, one-sided"),
        _difference("share_beyond_floor", _beyond_floor(everyone, draws, shares, layer), n),
        _difference("true_minus_false", draws.shares(found, 1)[0] - draws.shares(found, 2)[0], n, two_sided=True),
    ]
    thirds = _difference("thirds_difference", draws.shares(found, 5)[0] - draws.shares(found, 3)[0], n)
    tests.append(thirds)
    tests += list(_further(items, used, confidence, states, draws, device))
    width = (np.nanpercentile(everyone[1:], 97.5) - np.nanpercentile(everyone[1:], 2.5)) / 2
    tests.append(ShareTest("minimum_n", float(np.ceil(n * (width / _GOOD_WIDTH) ** 2)), n=n,
                      method=f"items for an interval of ± {_GOOD_WIDTH} around the share"))  # fmt: skip
    tests.append(ShareTest("directions", float(n_directions), n=n, intervention=None, method="principal directions"))
    z, explained, predicted = found.clean[0], found.explained[0], found.predicted[0]
    line = fit_line(z, np.mean([one.explained[0] for one in random], axis=0))
    mixture = held_out_mixture(z, explained, predicted, items.folds, line)
    gain = draws.sums(mixture.gain) / draws.counts.sum(1)
    tests.append(_difference("mixture_gain", gain, n))
    # Two groups are claimed where all agree: something is lost, thirds differ held out, and two groups explain better.
    differ = thirds.ci_low is not None and thirds.ci_low > 0
    allowed = beyond_zero[1] < SIGNIFICANT and differ and float(mixture.gain.mean()) > LEAST_GAIN
    tests += [_auc("probe", z, items), *_slopes(line, n)]
    single = item_shares(z, explained, line, found.had[0], float(everyone[0]))
    return TestedShare(tests, single, calls(mixture.probability, allowed))


def _difference(quantity: str, samples: Floats, n: int, two_sided: bool = False, group: str | None = None) -> ShareTest:
    """A number with interval, and the p-value of "not above zero" (or "zero") from the draws' spread."""
    low, high = percentile_interval(samples[None, 1:], axis=1)
    spread = float(np.nanstd(samples[1:]))
    standard = float(samples[0]) / spread if spread > 0 else 0.0
    p_value = 2 * norm.sf(abs(standard)) if two_sided else norm.sf(standard)
    return ShareTest(quantity, float(samples[0]), float(low[0]), float(high[0]), float(p_value), group=group, n=n)


def _beyond_zero(lost: Floats, groups: NDArray[np.int64]) -> tuple[float, float]:
    """T and its one-sided p: truth is independent of the clean evidence, given the cut state."""
    _, member = np.unique(groups, return_inverse=True)
    sums = np.bincount(member, weights=lost)
    spread = sums.std(ddof=1) * np.sqrt(len(sums))
    statistic = float(sums.sum() / spread) if spread > 0 else 0.0
    return statistic, float(norm.sf(statistic))


def _beyond_floor(everyone: Floats, draws: ShareDraws, shares: Shares, layer: int) -> Floats:
    floor = draws.shares(headline_lost(shares, NONE, layer), 0)[0]
    return (everyone - floor) / (1 - floor)


def _further(
    items: ShareItems, used: Sequence[Item], confidence: Floats, states: HeadlineStates, draws: ShareDraws,
    device: str | torch.device,
) -> Iterator[ShareTest]:  # fmt: skip
    """The share once words, confidence and relation are taken out, and features that go with it."""
    halves = make_halves(items.groups, truth_strata(items.labels, items.relations), items.seed, items.item_ids)
    evidence = clean_evidence(states.clean, halves, items.labels, device)
    name, given = taken_out(used, confidence)
    n = len(used)
    without = lost_evidence(evidence, states.cut, halves, items.labels, items.folds, device, given=given)
    if draws.has_evidence(without.had)[0]:
        yield _difference("share_given", draws.shares(without, 0)[0], n, group=name)
    features = features_of(used, confidence)
    if features:
        sets = np.stack([side for one in features for side in (one.high, one.low)])
        found = lost_evidence(evidence, states.cut, halves, items.labels, items.folds, device, sets=sets)
        for place, one in enumerate(features):
            if not all(draws.has_evidence(found.had * side)[0] for side in (one.high, one.low)):
                continue  # a share of no evidence says nothing
            high, low = (draws.shares(found, len(GROUPS) + 2 * place + side)[0] for side in range(2))
            size = int(one.high.sum() + one.low.sum())
            yield _difference("share_by_feature", high - low, size, two_sided=True, group=one.name)


def _auc(name: str, scores: Floats, items: ShareItems) -> ShareTest:
    return ShareTest("auc", float(auc(scores, items.labels)), intervention=None, group=name, n=len(scores),
                method="half splits")  # fmt: skip


def null_areas(
    states: Mapping[str, Tensor], shares: Shares, layer: int, items: ShareItems, used: Sequence[Item],
    confidence: Floats, device: str | torch.device,
) -> list[ShareTest]:  # fmt: skip
    """AUC of probes that have less to read, each like the probe itself: by halves, at the same layer."""
    halves = make_halves(items.groups, truth_strata(items.labels, items.relations), items.seed, items.item_ids)
    name, features = taken_out(used, confidence)
    known = {**states, name.replace(", ", " + "): torch.as_tensor(features).float()[None]}
    found = []
    for what, one in known.items():
        scores = clean_evidence(one, halves, items.labels, device).held_out(halves)[0].mean(0).numpy()
        found.append(_auc(what, scores, items))
    names = ((PERMUTED, "permuted labels", permuted_labels(items)), (RANDOM_WEIGHTS, "random weights", items.labels))
    for cut, what, labels in names:
        if cut in shares.found:
            found.append(_auc(what, shares.at_headline(cut).clean[layer], replace(items, labels=labels)))
    return found


def _slopes(line: Line, n: int) -> list[ShareTest]:
    return [ShareTest("kept_slope", line.slope, intervention="random", n=n, method="ẑ on z under the random cuts")]


def tests_frame(tests: Sequence[ShareTest], context: ShareContext, place: tuple[str, str], layer: int) -> pl.DataFrame:
    """The tests as a table."""
    rows = [
        {"model": context.model, "dataset": context.dataset, "site": place[0], "position": place[1], "layer": layer,
         **{name: _finite(value) for name, value in vars(one).items()}}
        for one in tests
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SHARE_TEST_SCHEMA)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value
