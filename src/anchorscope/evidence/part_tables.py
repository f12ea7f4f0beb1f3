"""The four parts as tables: evidence_parts.csv, evidence_items.parquet and evidence_tests.csv.

The tests are numbers beside the parts: their difference to the random cut, how far every cut moves the states, the
floor, the AUC of the probe and of what has less to read, and how many answers and groups there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtr

from anchorscope.artefacts.schema import (
    BAND,
    EVIDENCE_ITEM_SCHEMA,
    EVIDENCE_TEST_SCHEMA,
    PART_SCHEMA,
    layer_ranges,
)
from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.draws import Draws, areas, estimates
from anchorscope.evidence.further_runs import RANDOM_WEIGHTS, RESAMPLE, donors_of
from anchorscope.evidence_parts.need import Share, Terms
from anchorscope.evidence_parts.parts import (
    CUT,
    EITHER,
    FEWEST_ANSWERS,
    FEWEST_GROUPS,
    OTHER_SITE,
    PERMUTED,
    EvidenceItems,
    Needs,
    evidence_parts,
)

Floats = NDArray[np.floating]
Record = dict[str, object]

RANDOM = "random"


@dataclass(frozen=True)
class PartsOfDataset:
    """The terms of every view of a dataset, and what the tables say beside them."""

    model: str
    dataset: str
    items: EvidenceItems
    needs: Mapping[str, Needs]
    """By intervention; every draw of the random cut has its own. Empty where there are too few answers."""
    places: Sequence[tuple[str, str]]
    """(site, position) of every place."""
    headline: int
    """The headline's number among them."""
    n_layers: int
    band: Sequence[int]
    """Layers whose AUC is within one standard error of the best."""
    n_directions: int
    subsets: Mapping[str, EvidenceItems] = field(default_factory=dict)
    """The items of interventions that not all items have."""

    def items_of(self, intervention: str) -> EvidenceItems:
        """The items that an intervention's parts are of."""
        return self.subsets.get(intervention, self.items)

    def at_headline(self, intervention: str) -> dict[str, Share]:
        """The parts over layers; those of the random cut are the mean of its draws."""
        names = self.random_draws() if intervention == RANDOM else [intervention]
        by_draw = [evidence_parts(self._headline_needs(name)) for name in names]
        summed = {
            part: sum((draw[part] for draw in by_draw[1:]), first)
            for part, first in by_draw[0].items()
        }
        return {part: (1 / len(names)) * share for part, share in summed.items()}

    def interventions(self) -> list[str]:
        """Without further draws of the random cut, which are reported together with the first."""
        return [name for name in self.needs if not name.startswith(f"{RANDOM} ")]

    def random_draws(self) -> list[str]:
        return [
            name
            for name in self.needs
            if name == RANDOM or name.startswith(f"{RANDOM} ")
        ]

    def _headline_needs(self, intervention: str) -> Needs:
        start, views = self.headline * self.n_layers, self.needs[intervention]
        at_headline = slice(start, start + self.n_layers)
        return {
            view: terms if len(terms.lost) == self.n_layers else terms.take(at_headline)
            for view, terms in views.items()
        }

    def method(self, intervention: str) -> str:
        levels = (
            "groups and relations"
            if len(self.items_of(intervention).levels) > 1
            else "groups"
        )
        beside = (
            f", mean of {len(self.random_draws())} random cuts"
            if intervention == RANDOM
            else ""
        )
        if intervention == RESAMPLE:
            same = (
                " of the same relation"
                if donors_of(self.items.relations) == "patch-same"
                else ""
            )
            beside = f", key words of another item{same}"
        return f"half splits, {self.n_directions} principal directions, influence over {levels}{beside}"


def parts_frame(parts: PartsOfDataset) -> pl.DataFrame:
    """evidence_parts.csv: one row per intervention, place, layer and part; the headline's also for the band."""
    rows = [
        row
        for name in parts.interventions()
        if name != OTHER_SITE
        for row in _part_rows(parts, name)
    ]
    is_rest = (pl.col("intervention") == PERMUTED) & (
        pl.col("part") == EITHER
    )  # of real evidence nothing is left
    return pl.DataFrame(rows, schema=PART_SCHEMA).filter(~is_rest)


def _part_rows(parts: PartsOfDataset, intervention: str) -> Iterator[Record]:
    method = parts.method(intervention)
    for part, share in parts.at_headline(intervention).items():
        yield from layer_rows(parts, intervention, part, share)
    everywhere = parts.needs[intervention][CUT]
    if len(everywhere.lost) == parts.n_layers:
        return
    for number, place in enumerate(parts.places):
        if number != parts.headline:
            here = everywhere.take(
                slice(number * parts.n_layers, (number + 1) * parts.n_layers)
            )
            for part, share in evidence_parts({CUT: here}).items():
                yield from _rows(
                    parts,
                    intervention,
                    part,
                    share,
                    place,
                    range(parts.n_layers),
                    method,
                )


def layer_rows(
    parts: PartsOfDataset, intervention: str, part: str, share: Share
) -> Iterator[Record]:
    """A share at the headline place: over the band, then layer by layer."""
    where, method = parts.places[parts.headline], parts.method(intervention)
    of_band = f"{method}, layers {', '.join(layer_ranges(parts.band))}"
    yield from _rows(
        parts, intervention, part, share.mean_over(parts.band), where, [BAND], of_band
    )
    yield from _rows(
        parts, intervention, part, share, where, range(parts.n_layers), method
    )


def _rows(
    parts: PartsOfDataset,
    intervention: str,
    part: str,
    share: Share,
    place: tuple[str, str],
    layers: Sequence[object],
    method: str,
) -> Iterator[Record]:
    items = parts.items_of(intervention)
    half_width = share.half_width(*items.levels)
    for layer, value, width in zip(layers, share.value, half_width, strict=True):
        is_known = np.isfinite(value) and np.isfinite(width)
        yield {
            "model": parts.model,
            "dataset": parts.dataset,
            "intervention": intervention,
            "site": place[0],
            "position": place[1],
            "layer": str(layer),
            "part": part,
            "share": float(value) if is_known else None,
            "ci_low": float(value - width) if is_known else None,
            "ci_high": float(value + width) if is_known else None,
            "n": len(items.labels),
            "n_groups": len(np.unique(items.groups)),
            "method": method,
        }


def evidence_items_frame(parts: PartsOfDataset) -> pl.DataFrame:
    """evidence_items.parquet: the four terms of every item and view, lists over layers; of random cuts the mean."""
    frames = [pl.DataFrame(schema=EVIDENCE_ITEM_SCHEMA)]
    for name in parts.interventions():
        if name == OTHER_SITE:
            continue
        for view, terms in parts.needs[name].items():
            if name == RANDOM:
                draws = [parts.needs[draw][view] for draw in parts.random_draws()]
                terms = Terms(
                    *(np.mean(columns, axis=0) for columns in zip(*draws, strict=True))
                )
            frames += _item_rows(parts, name, view, terms)
    return pl.concat(frames)


def _item_rows(
    parts: PartsOfDataset, intervention: str, view: str, terms: Terms
) -> Iterator[pl.DataFrame]:
    for start in range(0, len(terms.lost), parts.n_layers):
        place = (
            start // parts.n_layers
            if len(terms.lost) > parts.n_layers
            else parts.headline
        )
        here = terms.take(slice(start, start + parts.n_layers))
        columns = {
            "dataset": parts.dataset,
            "item_id": list(parts.items_of(intervention).item_ids),
            "intervention": intervention,
            "view": view,
            "site": parts.places[place][0],
            "position": parts.places[place][1],
            **{
                name: getattr(here, name).T.astype(np.float32).tolist()
                for name in ("lost", "label_left", "had", "label")
            },
        }
        yield pl.DataFrame(columns, schema=EVIDENCE_ITEM_SCHEMA)


@dataclass(frozen=True)
class EvidenceTest:
    """One row of evidence_tests.csv."""

    quantity: str
    value: float
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None
    intervention: str | None = None
    group: str | None = None
    """The part, or what the AUC is of."""
    n: int | None = None
    method: str = ""


def evidence_tests(
    parts: PartsOfDataset,
    stored: Mapping[str, Floats],
    null_scores: Mapping[str, Floats],
    weights: NDArray[np.float32],
) -> list[EvidenceTest]:
    """All numbers beside the parts; scores are means over the band."""
    items, n = parts.items, len(parts.items.labels)
    counts = [
        EvidenceTest(
            "answers",
            float(n),
            n=n,
            method=f"used answers; {FEWEST_ANSWERS} are needed for a share",
        ),
        EvidenceTest(
            "groups",
            float(len(np.unique(items.groups))),
            n=n,
            method=f"{FEWEST_GROUPS} are needed",
        ),
        EvidenceTest(
            "directions",
            float(parts.n_directions),
            n=n,
            method="principal directions of every view",
        ),
    ]
    scores = {"probe": stored["scores/clean"], **null_scores}
    scores |= {
        name.replace("-", " ").replace(PERMUTED, "permuted labels"): stored[
            f"scores/{name}"
        ]
        for name in (PERMUTED, RANDOM_WEIGHTS)
        if f"scores/{name}" in stored
    }
    draws, band = Draws.of(weights), list(parts.band)
    ladder = [
        _auc(
            what,
            scores[what][band].mean(axis=0),
            items.permuted if what == "permuted labels" else items,
            draws,
        )
        for what in sorted(scores)
    ]
    return [*counts, *ladder, *_beside(parts, stored)]


def _beside(
    parts: PartsOfDataset, stored: Mapping[str, Floats]
) -> Iterator[EvidenceTest]:
    """Differences to the random cut, the floor, and displacements, all over the band."""
    if not parts.needs:
        return
    knockout, random = parts.at_headline(KNOCKOUT), parts.at_headline(RANDOM)
    for part, share in knockout.items():
        yield _difference("above_random", share - random[part], part, parts)
    (floor,) = parts.at_headline(OTHER_SITE).values()
    yield _difference("floor", floor, OTHER_SITE, parts)
    for name, by_layer in sorted(stored.items()):
        kind, _, intervention = name.partition("/")
        if kind == "displacement":
            value = float(by_layer[list(parts.band)].mean())
            method = "median over items of |cut − clean| / |clean − mean|, mean over the band"
            n = len(parts.items_of(intervention).labels)
            yield EvidenceTest(
                kind, value, intervention=intervention, n=n, method=method
            )


def _difference(
    quantity: str, share: Share, group: str, parts: PartsOfDataset
) -> EvidenceTest:
    """A number over the band with its interval, and the two-sided p-value of zero."""
    band, levels = share.mean_over(parts.band), parts.items.levels
    value, width = float(band.value[0]), float(band.half_width(*levels)[0])
    spread = max(float(band.standard_error(level)[0]) for level in levels)
    p_value = float(2 * ndtr(-abs(value) / spread)) if spread != 0 else 1.0
    n, method = len(parts.items.labels), parts.method(KNOCKOUT)
    return EvidenceTest(
        quantity,
        value,
        value - width,
        value + width,
        p_value,
        KNOCKOUT,
        group,
        n,
        method,
    )


def _auc(name: str, scores: Floats, items: EvidenceItems, draws: Draws) -> EvidenceTest:
    """The AUC of held-out scores, with the bootstrap's interval."""
    together = np.zeros(len(scores), dtype=np.int64)
    value, low, high = estimates(areas(scores[None], items.labels, together, draws)[0])
    method = "half splits, bootstrap over groups"
    return EvidenceTest(
        "auc",
        float(value),
        float(low),
        float(high),
        group=name,
        n=len(scores),
        method=method,
    )


def tests_frame(tests: Sequence[EvidenceTest], parts: PartsOfDataset) -> pl.DataFrame:
    """evidence_tests.csv."""
    site, position = parts.places[parts.headline]
    where = {
        "model": parts.model,
        "dataset": parts.dataset,
        "site": site,
        "position": position,
    }
    where["layers"] = ", ".join(layer_ranges(parts.band))
    rows = [
        {**where, **{name: _finite(value) for name, value in vars(test).items()}}
        for test in tests
    ]
    return pl.DataFrame(rows, schema=EVIDENCE_TEST_SCHEMA)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value
