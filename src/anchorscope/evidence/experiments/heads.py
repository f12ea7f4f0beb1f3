"""Single heads: the knockout in one query head at a time, in the layer that decides about the pathways.

That is the most frequent reference layer r. A probe there sees what its own block's attention fetched, so a head of
that block that reads the question's words shows up; but much may have been fetched before. Each head number is also cut
in a window of layers that ends with r, all of them together (heads of one number in different layers have nothing in
common: the window only lets small effects add up). All heads at once stand beside them, for scale. Items whose own
reference layer lies below the cut cannot see it and do not count.
"""

from anchorscope.evidence.draws import resampling
from anchorscope.evidence.experiments.cut_effects import effects_of, reference_statistics, summed_over
from anchorscope.evidence.experiments.experiment import Experiment, ExperimentInputs, Found, Statistic
from anchorscope.evidence.experiments.partial_cuts import Outcome, partial_knockout, run_partial_cuts, window_width
from anchorscope.interventions.intervention import Intervention

ALL_HEADS = "all heads"
"""The whole layer, for scale."""
SINGLE_HEADS = "single heads"
"""All heads of the layer, each cut alone, added up."""


def run(inputs: ExperimentInputs) -> Found:
    """Every head alone at the reference layer's depth."""
    families = head_knockouts(inputs.planner.n_heads, inputs.most_frequent_reference, window_width(inputs))
    outcomes, missing = run_partial_cuts(inputs, [one for family in families for one in family], "heads")
    found = analyse(inputs, outcomes)
    alone = [one for one in outcomes if one.intervention.heads is not None and len(one.intervention.layers or ()) == 1]
    values = (summed_over(inputs, alone, SINGLE_HEADS),) if alone else ()
    return Found(found.statistics, values, (*missing, *found.missing))


def head_knockouts(n_heads: int, layer: int, width: int) -> list[list[Intervention]]:
    """Every head, and all of them, in one layer, and in a window that ends with it."""
    families = []
    for first in dict.fromkeys((layer, max(0, layer - width + 1))):
        where = "" if first == layer else f", layers {first}–{layer}"
        layers = range(first, layer + 1)
        each = [partial_knockout(f"head {head}{where}", layers, (head,)) for head in range(n_heads)]
        families.append([*each, partial_knockout(f"{ALL_HEADS}{where}", layers)])
    return families


def analyse(inputs: ExperimentInputs, outcomes: list[Outcome]) -> Found:
    """ΔP at the reference layer per head; the false discovery rate is controlled over the heads of a family."""
    rows: list[Statistic] = []
    missing: list[str] = []
    starts = dict.fromkeys(outcome.first for outcome in outcomes)
    inputs.progress.start("heads: statistics", len(inputs.calls))
    with resampling(inputs.draws.device):
        for assignment in inputs.calls:
            for first in starts:
                here = [one for one in outcomes if one.first == first]
                for scale in (False, True):  # all heads together are no test among many
                    some = [one for one in here if (one.intervention.heads is None) == scale]
                    found, reasons = reference_statistics(effects_of(inputs, assignment, some))
                    rows += found
                    missing += reasons
            inputs.progress.advance(1)
    inputs.progress.finish()
    return Found(tuple(rows), missing=tuple(dict.fromkeys(missing)))


EXPERIMENT = Experiment("heads", "the knockout in single heads at the reference layer's depth", run)
