"""question_share.csv and question_share_items.parquet: the question share as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.question_share.evidence import GROUPS, Lost
from anchorscope.question_share.intervals import ShareDraws
from anchorscope.question_share.shares import PERMUTED, RANDOM, Shares
from anchorscope.schema import SHARE_COLUMNS, SHARE_ITEM_SCHEMA
from anchorscope.stats.estimate import percentile_interval

Record = dict[str, object]
_WHO = {
    "all": ("all", "all"),
    "true": ("all", "true"),
    "false": ("all", "false"),
    "lower third": ("lower third", "all"),
    "middle third": ("middle third", "all"),
    "upper third": ("upper third", "all"),
}
"""Group and truth of each of `GROUPS`, as the table names them."""
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
    rows = [row for name in shares.found for row in _rows(shares, name, draws, context)]
    return pl.DataFrame(rows, infer_schema_length=None).select(SHARE_COLUMNS)


def _rows(shares: Shares, name: str, draws: ShareDraws, context: ShareContext) -> Iterator[Record]:
    found = shares.found[name]
    if name.startswith(f"{RANDOM} "):
        return  # a further draw of the control: told together with the first
    method = f"half splits, {context.n_directions} principal directions, bootstrap over groups"
    whole = len(context.places) * shares.n_layers
    n_groups = _BY_TRUTH if name == PERMUTED else len(GROUPS)
    for group in range(n_groups):
        samples, told = draws.shares(found, group), [method] * len(found.lost)
        if name == RANDOM:
            samples, told = _with_repetitions(shares, samples, group, draws, told)
        known = draws.has_evidence(found.had * found.members[:, group])
        low, high = percentile_interval(samples[:, 1:], axis=1)
        for problem in range(len(found.lost)):
            place, layer = divmod(problem, shares.n_layers)
            site, position = context.places[place if len(found.lost) == whole else shares.headline]
            inside = found.members[problem, group]
            who, truth = _WHO[GROUPS[group]]
            yield {
                "model": context.model,
                "dataset": context.dataset,
                "intervention": name,
                "site": site,
                "position": position,
                "layer": layer,
                "group": who,
                "truth": truth,
                **_numbers(samples[problem, 0], low[problem], high[problem], bool(known[problem])),
                "n": int(inside.sum()),
                "n_groups": len(np.unique(context.groups[inside])),
                "method": told[problem],
            }


def _with_repetitions(
    shares: Shares, samples: NDArray[np.floating], group: int, draws: ShareDraws, told: list[str]
) -> tuple[NDArray[np.floating], list[str]]:
    """The random control's shares; at the headline the mean of all its draws."""
    cuts = shares.random_cuts()
    mean = np.mean([draws.shares(one, group) for one in cuts], axis=0)
    here = slice(shares.headline * shares.n_layers, (shares.headline + 1) * shares.n_layers)
    if len(samples) == shares.n_layers:
        here = slice(None)
    samples, told = samples.copy(), [f"{text}, 1 random cut" for text in told]
    samples[here] = mean
    told[here] = [text.replace("1 random cut", f"mean of {len(cuts)} random cuts") for text in told[here]]
    return samples, told


def _numbers(value: float, low: float, high: float, known: bool) -> Record:
    """Share and interval; nothing where there is no evidence to share."""
    names = ("share", "ci_low", "ci_high")
    if not known:
        return dict.fromkeys(names)
    return {name: float(one) if np.isfinite(one) else None for name, one in zip(names, (value, low, high), strict=True)}


def share_items_frame(shares: Shares, context: ShareContext) -> pl.DataFrame:
    """Lost and had of every item, lists over layers; the random control's is the mean of its draws."""
    frames = []
    for name, found in shares.found.items():
        if name.startswith(f"{RANDOM} "):
            continue
        for place in range(len(found.lost) // shares.n_layers):
            layers = slice(place * shares.n_layers, (place + 1) * shares.n_layers)
            at = place if len(found.lost) > shares.n_layers else shares.headline
            lost = found.lost[layers]
            if name == RANDOM and at == shares.headline:
                lost = np.mean([one.lost for one in shares.random_cuts()], axis=0)
            frames.append(_item_rows(name, context, context.places[at], lost, found.had[layers]))
    return pl.concat(frames)


def _item_rows(
    name: str, context: ShareContext, place: tuple[str, str], lost: NDArray[np.floating], had: NDArray[np.floating]
) -> pl.DataFrame:
    n = len(context.item_ids)
    return pl.DataFrame(
        {
            "dataset": [context.dataset] * n,
            "item_id": list(context.item_ids),
            "intervention": [name] * n,
            "site": [place[0]] * n,
            "position": [place[1]] * n,
            "lost": lost.T.astype(np.float32).tolist(),
            "had": had.T.astype(np.float32).tolist(),
        },
        schema=SHARE_ITEM_SCHEMA,
    )


def headline_lost(shares: Shares, name: str, layer: int) -> Lost:
    """A cut at the headline place and one layer."""
    return Lost(*(part[layer : layer + 1] for part in shares.at_headline(name)))
