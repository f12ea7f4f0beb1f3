"""The question share as tables: question_share.csv, question_share_items.parquet and question_share_tests.csv.

The tests are of the headline place and layer: differences, what other features go with the share, single items. A
feature splits the items in two, by its median or by kind, without a look at labels or states.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.sparse.linalg import svds
from scipy.stats import norm
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import log_popularity
from anchorscope.datasets.text import words
from anchorscope.evidence.draws import Draws, areas, estimates
from anchorscope.evidence.further_runs import RANDOM_WEIGHTS
from anchorscope.execute.solver import Solver
from anchorscope.items import Item
from anchorscope.question_share.evidence import GROUPS, Lost
from anchorscope.question_share.posterior import (
    ItemShares,
    beyond_zero,
    calls,
    fit_line,
    held_out_mixture,
    item_shares,
    may_call,
)
from anchorscope.question_share.shares import (
    CLEAN,
    NONE,
    PERMUTED,
    RANDOM,
    ShareDraws,
    ShareItems,
    Shares,
    further_shares,
    held_out_scores,
    permuted_labels,
)
from anchorscope.schema import SHARE_COLUMNS, SHARE_ITEM_SCHEMA, SHARE_TEST_SCHEMA
from anchorscope.stats.estimate import percentile_interval

Floats = NDArray[np.floating]
Record = dict[str, object]

FEWEST = 20
"""Items that a set needs on either side."""
_ITEMS_PER_FEATURE = 20  # as many items stand behind each feature that is taken out
_GOOD_WIDTH = 0.1  # either side of a share: what `minimum_n` is needed for
_BY_TRUTH = 3  # the first of `GROUPS`: all, true, false


@dataclass(frozen=True)
class ShareContext:
    """What the tables say beside the numbers."""

    model: str
    dataset: str
    item_ids: Sequence[str]
    groups: NDArray[np.int64]
    places: Sequence[tuple[str, str]]
    """(site, position) of every place."""
    n_directions: int


def share_frame(shares: Shares, draws: ShareDraws, context: ShareContext) -> pl.DataFrame:
    """One row per cut, place, layer and group."""
    rows = [row for name in _cuts(shares) for row in _rows(shares, name, draws, context)]
    return pl.DataFrame(rows, infer_schema_length=None).select(SHARE_COLUMNS)


def _cuts(shares: Shares) -> list[str]:
    """Without further draws of the random control, which are reported together with the first."""
    return [name for name in shares.found if not name.startswith(f"{RANDOM} ")]


def _rows(shares: Shares, name: str, draws: ShareDraws, context: ShareContext) -> Iterator[Record]:
    cut = shares.found[name]
    method = f"half splits, {context.n_directions} principal directions, bootstrap over groups"
    whole = len(context.places) * shares.n_layers
    for group, group_name in enumerate(GROUPS[:_BY_TRUTH] if name == PERMUTED else GROUPS):
        samples, methods = draws.shares(cut, group), [method] * len(cut.lost)
        if name == RANDOM:
            samples, methods = _with_repetitions(shares, samples, group, draws, method)
        known = draws.has_evidence(cut.had * cut.members[:, group])
        low, high = percentile_interval(samples[:, 1:], axis=1)
        for problem in range(len(cut.lost)):
            place, layer = divmod(problem, shares.n_layers)
            site, position = context.places[place if len(cut.lost) == whole else shares.headline]
            inside = cut.members[problem, group]
            # Where there is no evidence there is no share of it.
            numbers = (samples[problem, 0], low[problem], high[problem]) if known[problem] else (np.nan,) * 3
            yield {
                "model": context.model,
                "dataset": context.dataset,
                "intervention": name,
                "site": site,
                "position": position,
                "layer": layer,
                "group": "all" if group_name in ("true", "false") else group_name,
                "truth": group_name if group_name in ("true", "false") else "all",
                **dict(zip(("share", "ci_low", "ci_high"), map(_finite, map(float, numbers)), strict=True)),
                "n": int(inside.sum()),
                "n_groups": len(np.unique(context.groups[inside])),
                "method": methods[problem],
            }


def _with_repetitions(
    shares: Shares, samples: Floats, group: int, draws: ShareDraws, method: str
) -> tuple[Floats, list[str]]:
    """The random control's shares; at the headline the mean of all its draws."""
    cuts = shares.random_cuts()
    first = 0 if len(samples) == shares.n_layers else shares.headline * shares.n_layers
    samples, methods = samples.copy(), [f"{method}, 1 random cut"] * len(samples)
    for problem in range(first, first + shares.n_layers):
        methods[problem] = f"{method}, mean of {len(cuts)} random cuts"
    samples[first : first + shares.n_layers] = np.mean([draws.shares(cut, group) for cut in cuts], axis=0)
    return samples, methods


def share_items_frame(shares: Shares, context: ShareContext) -> pl.DataFrame:
    """Lost and had of every item, lists over layers; the random control's is the mean of its draws."""
    frames, n = [], len(context.item_ids)
    for name in _cuts(shares):
        cut = shares.found[name]
        for start in range(0, len(cut.lost), shares.n_layers):
            layers = slice(start, start + shares.n_layers)
            place = start // shares.n_layers if len(cut.lost) > shares.n_layers else shares.headline
            lost = cut.lost[layers]
            if name == RANDOM and place == shares.headline:
                lost = np.mean([cut.lost for cut in shares.random_cuts()], axis=0)
            columns = {
                "dataset": [context.dataset] * n,
                "item_id": list(context.item_ids),
                "intervention": [name] * n,
                "site": [context.places[place][0]] * n,
                "position": [context.places[place][1]] * n,
                "lost": lost.T.astype(np.float32).tolist(),
                "had": cut.had[layers].T.astype(np.float32).tolist(),
            }
            frames.append(pl.DataFrame(columns, schema=SHARE_ITEM_SCHEMA))
    return pl.concat(frames)


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


def _at_layer(cut: Lost, layer: int) -> Lost:
    return Lost(*(part[layer : layer + 1] for part in cut))


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
    cut = _at_layer(shares.at_headline(KNOCKOUT), layer)
    random = [_at_layer(one, layer) for one in shares.random_cuts()]
    everyone = draws.shares(cut, 0)[0]
    by_chance = np.mean([draws.shares(one, 0)[0] for one in random], axis=0)
    floor = draws.shares(_at_layer(shares.at_headline(NONE), layer), 0)[0]
    n = len(items.labels)
    statistic, p_value = beyond_zero(cut.lost[0], items.groups)
    thirds = _difference("thirds_difference", draws.shares(cut, 5)[0] - draws.shares(cut, 3)[0], n)
    width = (np.nanpercentile(everyone[1:], 97.5) - np.nanpercentile(everyone[1:], 2.5)) / 2
    z, explained, predicted = cut.clean[0], cut.explained[0], cut.predicted[0]
    line = fit_line(z, np.mean([one.explained[0] for one in random], axis=0))
    mixture = held_out_mixture(z, explained, predicted, items.folds, line)
    tests = [
        _difference("share_above_random", everyone - by_chance, n),
        ShareTest("share_above_zero", statistic, p_value=p_value, n=n, method="T over groups, one-sided"),
        _difference("share_beyond_floor", (everyone - floor) / (1 - floor), n),
        _difference("true_minus_false", draws.shares(cut, 1)[0] - draws.shares(cut, 2)[0], n),
        thirds,
        *_further(items, used, confidence, states, draws, fits),
        ShareTest(
            "minimum_n",
            float(np.ceil(n * (width / _GOOD_WIDTH) ** 2)),
            n=n,
            method=f"items for an interval of ± {_GOOD_WIDTH} around the share",
        ),
        ShareTest("directions", float(n_directions), n=n, intervention=None, method="principal directions"),
        _difference("mixture_gain", draws.sums(mixture.gain) / draws.counts.sum(1), n),
        _auc("probe", z, items, draws),
        ShareTest("kept_slope", line.slope, intervention="random", n=n, method="ẑ on z under the random cuts"),
    ]
    allowed = may_call(p_value, -np.inf if thirds.ci_low is None else thirds.ci_low, float(mixture.gain.mean()))
    single = item_shares(z, explained, line, cut.had[0], float(everyone[0]))
    return TestedShare(tests, single, calls(mixture.probability, allowed))


def _difference(quantity: str, samples: Floats, n: int, group: str | None = None) -> ShareTest:
    """A number with interval, and the p-value of "zero" from the draws' spread, two-sided as the interval is."""
    low, high = percentile_interval(samples[None, 1:], axis=1)
    spread = float(np.nanstd(samples[1:]))
    standard = float(samples[0]) / spread if spread > 0 else 0.0
    p_value = 2 * norm.sf(abs(standard))
    return ShareTest(quantity, float(samples[0]), float(low[0]), float(high[0]), float(p_value), group=group, n=n)


def _further(
    items: ShareItems, used: Sequence[Item], confidence: Floats, states: HeadlineStates, draws: ShareDraws, fits: Solver
) -> Iterator[ShareTest]:
    """The share once words, confidence and relation are taken out, and features that go with it."""
    name, given = taken_out(used, confidence)
    features = features_of(used, confidence)
    sets = np.stack([side for feature in features for side in (feature.high, feature.low)]) if features else None
    without, of_sets = fits(further_shares, tuple(states), items, given, sets, title="question share: tests")
    if draws.has_evidence(without.had)[0]:
        yield _difference("share_given", draws.shares(without, 0)[0], len(used), group=name)
    for place, feature in enumerate(features):
        assert of_sets is not None, "features make sets"
        if not all(draws.has_evidence(of_sets.had * side)[0] for side in (feature.high, feature.low)):
            continue  # a share of no evidence says nothing
        high, low = (draws.shares(of_sets, len(GROUPS) + 2 * place + side)[0] for side in range(2))
        size = int(feature.high.sum() + feature.low.sum())
        yield _difference("share_by_feature", high - low, size, group=feature.name)


def _auc(name: str, scores: Floats, items: ShareItems, draws: ShareDraws) -> ShareTest:
    """The AUC of held-out scores, with the bootstrap's interval."""
    together = np.zeros(len(scores), dtype=np.int64)
    value, low, high = estimates(areas(scores[None], items.labels, together, Draws.of(draws.counts[1:]))[0])
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
    by_words = fits(held_out_scores, torch.as_tensor(features).float()[None], items, "words", title="words")[0]
    tests = [_auc(what, scores[what], items, draws) for what in sorted(scores)]  # in one order, read or made
    tests.append(_auc(name.replace(", ", " + "), by_words, items, draws))
    names = ((PERMUTED, "permuted labels", permuted_labels(items)), (RANDOM_WEIGHTS, "random weights", items.labels))
    for cut, what, labels in names:
        if cut in shares.found:
            tests.append(_auc(what, shares.at_headline(cut).clean[layer], replace(items, labels=labels), draws))
    return tests


def tests_frame(tests: Sequence[ShareTest], context: ShareContext, place: tuple[str, str], layer: int) -> pl.DataFrame:
    """The tests as a table."""
    where = {"model": context.model, "dataset": context.dataset, "site": place[0], "position": place[1], "layer": layer}
    rows = [{**where, **{name: _finite(value) for name, value in vars(test).items()}} for test in tests]
    return pl.DataFrame(rows, schema=SHARE_TEST_SCHEMA)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value


@dataclass(frozen=True)
class Feature:
    """A feature that splits the items: who is above the median or of the kind, and who is below it or of another."""

    name: str
    high: NDArray[np.bool_]
    low: NDArray[np.bool_]


def answer_type(item: Item) -> str:
    """What an answer is by its letters: a number, a name, or other words."""
    text = item.answer.text.strip()
    if any(letter.isdigit() for letter in text):
        return "number"
    return "name" if text[:1].isupper() else "words"


def features_of(items: Sequence[Item], confidence: Floats) -> list[Feature]:
    """All features that split these items into sets large enough; `confidence` is NaN where unknown."""
    numbers = {
        "subject popularity": np.array([log_popularity(item.question) for item in items]),
        "answer length": np.array([float(len(item.answer.ids)) for item in items]),
        "confidence": confidence,
        "question length": np.array([float(len(words(item.question.question))) for item in items]),
        "key tokens": np.array([float(len(item.located.question_tokens)) for item in items]),
    }
    features = [_by_median(name, values) for name, values in numbers.items()]
    kinds = {
        "answer type": [answer_type(item) for item in items],
        "relation": [item.question.relation or "" for item in items],
    }
    for name, values in kinds.items():
        features += [
            Feature(f"{name}: {kind}", np.array(values) == kind, np.array(values) != kind)
            for kind in sorted(set(values))
            if kind
        ]
    return [feature for feature in features if min(feature.high.sum(), feature.low.sum()) >= FEWEST]


def _by_median(name: str, values: Floats) -> Feature:
    known = np.isfinite(values)
    middle = np.median(values[known]) if known.any() else np.nan
    high = known & (values > middle)
    low = known & (values < middle)
    # Whole numbers tie at the median: ties go where they even the sets out.
    tied = known & (values == middle)
    return Feature(name, high | tied, low) if high.sum() < low.sum() else Feature(name, high, low | tied)


def taken_out(items: Sequence[Item], confidence: Floats) -> tuple[str, NDArray[np.float64]]:
    """What the words, the relation and the confidence say of every item, standardised, and how that is called.

    Words are reduced to their leading directions over the items (latent semantic analysis), relations to columns of
    their own.
    """
    room = max(2, len(items) // _ITEMS_PER_FEATURE)
    columns: dict[str, Floats] = {"words": _leading_words(items, room)}
    if np.isfinite(confidence).all():
        columns["confidence"] = confidence[:, None]
    relations = [item.question.relation or "" for item in items]
    kinds = sorted({relation for relation in relations if relations.count(relation) >= 2})[:room]
    if len(kinds) > 1:
        columns["relation"] = np.array([[float(relation == kind) for kind in kinds] for relation in relations])
    table = np.concatenate(list(columns.values()), axis=1)
    deviation = table.std(axis=0)
    return ", ".join(columns), (table - table.mean(axis=0)) / np.where(deviation > 1e-12, deviation, 1.0)


def _leading_words(items: Sequence[Item], room: int) -> NDArray[np.float64]:
    """The items along the leading directions of their words, rare words counting more."""
    places: dict[str, int] = {}
    rows, columns = [], []
    for row, item in enumerate(items):
        text = [f"q {word}" for word in words(item.question.question)] + [
            f"a {word}" for word in words(item.answer.text)
        ]
        for word in dict.fromkeys(text):  # not a set: its order differs between processes, and so would the last digit
            rows.append(row)
            columns.append(places.setdefault(word, len(places)))
    table = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(items), max(len(places), 1)))
    table = table * np.log(len(items) / np.asarray(table.sum(axis=0)).clip(min=1))[None, :]
    rank = min(room, min(table.shape) - 1)
    if rank < 1:
        return np.zeros((len(items), 1))
    left, values, _ = svds(sp.csr_array(table), k=rank, v0=np.ones(min(table.shape)), solver="arpack")
    return np.asarray(left * values)
