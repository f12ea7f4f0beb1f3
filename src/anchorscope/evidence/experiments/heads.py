"""Single heads: the knockout in one query head at a time, in the layer that decides about the pathways.

That is the most frequent reference layer r. A probe there sees what its own block's attention fetched, so a head of
that block that reads the question's words shows up; but much may have been fetched before. Each head number is also cut
in a window of layers that ends with r, all of them together (heads of one number in different layers have nothing in
common: the window only lets small effects add up). All heads at once stand beside them, for scale. Items whose own
reference layer lies below the cut cannot see it and do not count.
"""

import numpy as np

from anchorscope.evidence.draws import resampling
from anchorscope.evidence.experiments.cut_effects import effects_of, summed_over
from anchorscope.evidence.experiments.cut_statistics import reference_statistics
from anchorscope.evidence.experiments.experiment import Experiment, Found, Ground, Statistic
from anchorscope.evidence.experiments.windows import Outcome, Way, run_ways, window_width

ALL_HEADS = "all heads"
"""The whole layer, for scale."""
SINGLE_HEADS = "single heads"
"""All heads of the layer, each cut alone, added up."""


def run(ground: Ground) -> Found:
    """Every head alone at the reference layer's depth."""
    families = head_ways(ground.model().n_heads, most_frequent_reference(ground), window_width(ground))
    outcomes, missing = run_ways(ground, [way for family in families for way in family], "heads")
    found = analyse(ground, outcomes)
    alone = [one for one in outcomes if one.way.heads is not None and len(one.way.layers) == 1]
    values = (summed_over(ground, alone, SINGLE_HEADS),) if alone else ()
    return Found(found.statistics, values, (*missing, *found.missing))


def most_frequent_reference(ground: Ground) -> int:
    """The reference layer of most folds; the lowest of those that are equally frequent, which most items can see."""
    place = ground.place
    return int(np.argmax(np.bincount(place.reference[place.probe("full")])))


def head_ways(n_heads: int, layer: int, width: int) -> list[list[Way]]:
    """Every head, and all of them, in one layer, and in a window that ends with it."""
    families = []
    for first in dict.fromkeys((layer, max(0, layer - width + 1))):
        where = "" if first == layer else f", layers {first}–{layer}"
        layers = range(first, layer + 1)
        each = [Way(f"head {head}{where}", layers, (head,)) for head in range(n_heads)]
        families.append([*each, Way(f"{ALL_HEADS}{where}", layers)])
    return families


def analyse(ground: Ground, outcomes: list[Outcome]) -> Found:
    """ΔP at the reference layer per head; the false discovery rate is controlled over the heads of a family."""
    rows: list[Statistic] = []
    missing: list[str] = []
    starts = dict.fromkeys(outcome.way.first for outcome in outcomes)
    ground.progress.start("heads: statistics", len(ground.calls))
    with resampling(ground.draws.device):
        for assignment in ground.calls:
            for first in starts:
                here = [one for one in outcomes if one.way.first == first]
                for scale in (False, True):  # all heads together are no test among many
                    some = [one for one in here if (one.way.heads is None) == scale]
                    found, reasons = reference_statistics(effects_of(ground, assignment, some))
                    rows += found
                    missing += reasons
            ground.progress.advance(1)
    ground.progress.finish()
    return Found(tuple(rows), missing=tuple(dict.fromkeys(missing)))


EXPERIMENT = Experiment("heads", "the knockout in single heads at the reference layer's depth", run)
