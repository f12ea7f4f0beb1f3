"""What follows from the question share at the headline place and layer: tests, differences, features, single items."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import Draws, estimates
from anchorscope.evidence.share_features import features_of, taken_out
from anchorscope.evidence.share_nulls import RANDOM_WEIGHTS
from anchorscope.evidence.share_tables import ShareContext, headline_lost
from anchorscope.execute.solver import Solver
from anchorscope.items import Item
from anchorscope.question_share.evidence import GROUPS, Lost
from anchorscope.question_share.gate import beyond_zero, may_call
from anchorscope.question_share.intervals import ShareDraws
from anchorscope.question_share.posterior import ItemShares, Line, calls, fit_line, held_out_mixture, item_shares
from anchorscope.question_share.shares import (
    CLEAN,
    NONE,
    PERMUTED,
    ShareItems,
    Shares,
    further_shares,
    held_out_scores,
    permuted_labels,
)
from anchorscope.schema import SHARE_TEST_SCHEMA
from anchorscope.stats.estimate import percentile_interval

Floats = NDArray[np.floating]
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


class HeadlineStates(NamedTuple):
    """Principal states at the headline place and layer."""

    clean: Float[Tensor, "1 item direction"]
    cut: Float[Tensor, "1 item direction"]


def headline_states(principal: Mapping[str, Tensor], place: int, layer: int) -> HeadlineStates:
    """Those of the clean run and of the knockout."""
    return HeadlineStates(*(principal[name][place, layer][None] for name in (CLEAN, KNOCKOUT)))


def tested_share(
    shares: Shares,
    layer: int,
    draws: ShareDraws,
    items: ShareItems,
    used: Sequence[Item],
    confidence: Floats,
    states: HeadlineStates,
    n_directions: int,
    fits: Solver,
) -> TestedShare:
    """All tests of one dataset."""
    found = headline_lost(shares, KNOCKOUT, layer)
    random = [Lost(*(part[layer : layer + 1] for part in one)) for one in shares.random_cuts()]
    everyone = draws.shares(found, 0)[0]
    by_chance = np.mean([draws.shares(one, 0)[0] for one in random], axis=0)
    n = len(items.labels)
    statistic, p_value = beyond_zero(found.lost[0], items.groups)
    tests = [
        _difference("share_above_random", everyone - by_chance, n),
        ShareTest("share_above_zero", statistic, p_value=p_value, n=n, method="T over groups, one-sided"),
        _difference("share_beyond_floor", _beyond_floor(everyone, draws, shares, layer), n),
        _difference("true_minus_false", draws.shares(found, 1)[0] - draws.shares(found, 2)[0], n),
    ]
    thirds = _difference("thirds_difference", draws.shares(found, 5)[0] - draws.shares(found, 3)[0], n)
    tests.append(thirds)
    tests += list(_further(items, used, confidence, states, draws, fits))
    width = (np.nanpercentile(everyone[1:], 97.5) - np.nanpercentile(everyone[1:], 2.5)) / 2
    tests.append(
        ShareTest(
            "minimum_n",
            float(np.ceil(n * (width / _GOOD_WIDTH) ** 2)),
            n=n,
            method=f"items for an interval of ± {_GOOD_WIDTH} around the share",
        )
    )
    tests.append(ShareTest("directions", float(n_directions), n=n, intervention=None, method="principal directions"))
    z, explained, predicted = found.clean[0], found.explained[0], found.predicted[0]
    line = fit_line(z, np.mean([one.explained[0] for one in random], axis=0))
    mixture = held_out_mixture(z, explained, predicted, items.folds, line)
    gain = draws.sums(mixture.gain) / draws.counts.sum(1)
    tests.append(_difference("mixture_gain", gain, n))
    allowed = may_call(p_value, -np.inf if thirds.ci_low is None else thirds.ci_low, float(mixture.gain.mean()))
    tests += [_auc("probe", z, items, draws), *_slopes(line, n)]
    single = item_shares(z, explained, line, found.had[0], float(everyone[0]))
    return TestedShare(tests, single, calls(mixture.probability, allowed))


def _difference(quantity: str, samples: Floats, n: int, group: str | None = None) -> ShareTest:
    """A number with interval, and the p-value of "zero" from the draws' spread, two-sided as the interval is."""
    low, high = percentile_interval(samples[None, 1:], axis=1)
    spread = float(np.nanstd(samples[1:]))
    standard = float(samples[0]) / spread if spread > 0 else 0.0
    p_value = 2 * norm.sf(abs(standard))
    return ShareTest(quantity, float(samples[0]), float(low[0]), float(high[0]), float(p_value), group=group, n=n)


def _beyond_floor(everyone: Floats, draws: ShareDraws, shares: Shares, layer: int) -> Floats:
    floor = draws.shares(headline_lost(shares, NONE, layer), 0)[0]
    return (everyone - floor) / (1 - floor)


def _further(
    items: ShareItems, used: Sequence[Item], confidence: Floats, states: HeadlineStates, draws: ShareDraws, fits: Solver
) -> Iterator[ShareTest]:
    """The share once words, confidence and relation are taken out, and features that go with it."""
    name, given = taken_out(used, confidence)
    features = features_of(used, confidence)
    sets = np.stack([side for one in features for side in (one.high, one.low)]) if features else None
    without, found = fits(further_shares, tuple(states), items, given, sets, title="question share: tests")
    if draws.has_evidence(without.had)[0]:
        yield _difference("share_given", draws.shares(without, 0)[0], len(used), group=name)
    if found is not None:
        for place, one in enumerate(features):
            if not all(draws.has_evidence(found.had * side)[0] for side in (one.high, one.low)):
                continue  # a share of no evidence says nothing
            high, low = (draws.shares(found, len(GROUPS) + 2 * place + side)[0] for side in range(2))
            size = int(one.high.sum() + one.low.sum())
            yield _difference("share_by_feature", high - low, size, group=one.name)


def _auc(name: str, scores: Floats, items: ShareItems, draws: ShareDraws) -> ShareTest:
    """The AUC of held-out scores, with the bootstrap's interval."""
    one = np.zeros(len(scores), dtype=np.int64)
    value, low, high = estimates(areas(scores[None], items.labels, one, Draws.of(draws.counts[1:]))[0])
    return ShareTest("auc", float(value), float(low), float(high), intervention=None, group=name, n=len(scores))


def null_areas(
    scores: Mapping[str, Floats],
    shares: Shares,
    layer: int,
    items: ShareItems,
    used: Sequence[Item],
    confidence: Floats,
    draws: ShareDraws,
    fits: Solver,
) -> list[ShareTest]:
    """AUC of probes that have less to read, each like the probe itself: by halves, at the same layer."""
    name, features = taken_out(used, confidence)
    words = fits(held_out_scores, torch.as_tensor(features).float()[None], items, "words", title="words")[0]
    found = [_auc(what, scores[what], items, draws) for what in sorted(scores)]  # in one order, read or made
    found.append(_auc(name.replace(", ", " + "), words, items, draws))
    names = ((PERMUTED, "permuted labels", permuted_labels(items)), (RANDOM_WEIGHTS, "random weights", items.labels))
    for cut, what, labels in names:
        if cut in shares.found:
            found.append(_auc(what, shares.at_headline(cut).clean[layer], replace(items, labels=labels), draws))
    return found


def _slopes(line: Line, n: int) -> list[ShareTest]:
    return [ShareTest("kept_slope", line.slope, intervention="random", n=n, method="ẑ on z under the random cuts")]


def tests_frame(tests: Sequence[ShareTest], context: ShareContext, place: tuple[str, str], layer: int) -> pl.DataFrame:
    """The tests as a table."""
    rows = [
        {
            "model": context.model,
            "dataset": context.dataset,
            "site": place[0],
            "position": place[1],
            "layer": layer,
            **{name: _finite(value) for name, value in vars(one).items()},
        }
        for one in tests
    ]
    return pl.DataFrame(rows, schema=SHARE_TEST_SCHEMA)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value
