"""The claims, in the order in which the page shows them. Texts are ours; numbers 1–5 are the readings (`sources.py`).

Where a reading has it both ways, it stands where most of it points. Reading 1 lets one A-Anchored line stay near zero
and others fall, and some Q-Anchored lines come back while others fall on; it calls Q-Anchored better than A-Anchored in
later layers, though its own figures put it lower, and sees the steepest fall in layers 5 to 10. Reading 2 calls PopQA
lowest in the smaller model and TriviaQA in the larger. Reading 3 sees the smaller model's lines level off and the
larger one's fall on. Reading 4 names HotpotQA as the steepest, though its own figures put PopQA lower.
"""

from anchorscope.report.claims import of_curves, of_datasets, of_sizes
from anchorscope.report.claims.claim import Claim

_LOWEST = tuple(f"{name}_lowest" for name in of_datasets.PAPER)


def _lowest(dataset: str, shown: str, says: tuple[int, ...], against: tuple[int, ...]) -> Claim:
    mine = f"{dataset}_lowest"
    text = f"Of the Q-Anchored curves that of {shown} lies lowest, in the mean from a third of the depth on."
    rivals = tuple(name for name in _LOWEST if name != mine)
    return Claim(mine, text, says, against, "several datasets", of_datasets.lowest(dataset), opposes=rivals)


_OF_CURVES = (
    Claim("groups_apart", "From a third of the depth on, Q-Anchored lies below A-Anchored at every layer.",
          (2, 3, 4, 5), (1,), "one model", of_curves.apart, opposes=("q_above_a_late",)),
    Claim("q_above_a_late", "In the last third of the layers Q-Anchored lies above A-Anchored.",
          (1,), (2, 3, 4, 5), "one model", of_curves.above_late, opposes=("groups_apart",)),
    Claim("a_near_zero", "The A-Anchored curve stays within 10 points of zero at every layer.",
          (2, 4, 5), (1, 3), "one model", of_curves.near_zero, opposes=("a_falls",)),
    Claim("a_falls", "The A-Anchored curve falls too, to −20 points or lower.",
          (1, 3), (2, 4, 5), "one model", of_curves.a_falls, opposes=("a_near_zero",)),
    Claim("starts_at_zero", "The Q-Anchored curve begins near zero: within 5 points at the first layer.",
          (1, 3, 4, 5), (2,), "one model", of_curves.starts_at_zero, opposes=("starts_low",)),
    Claim("starts_low", "The Q-Anchored curve begins low already: between −10 and −20 points at the first layer.",
          (2,), (1, 3, 4, 5), "one model", of_curves.starts_low, opposes=("starts_at_zero",)),
    Claim("falls_early",
          "The Q-Anchored curve falls most in the first third of the layers: by 5 points more than in either other.",
          (3, 4), (1, 5), "one model", of_curves.falls_early),
    Claim("trough_in_the_middle", "The Q-Anchored curve is lowest in the middle third of the layers.",
          (2,), (3, 4, 5), "one model", of_curves.trough_in_the_middle, "share of the depth"),
    Claim("recovers", "The Q-Anchored curve comes back from its lowest point by more than 10 points.",
          (2, 4), (3, 5), "one model", of_curves.recovers, opposes=("stays_low", "falls_on")),
    Claim("stays_low", "The Q-Anchored curve stays low: level from the middle layer on, back by less than 10 points.",
          (3,), (2, 4, 5), "one model", of_curves.stays_low, opposes=("recovers", "falls_on")),
    Claim("falls_on", "The Q-Anchored curve falls to the end: by more than 10 points from the middle layer on.",
          (3, 5), (2, 4), "one model", of_curves.falls_on, opposes=("recovers", "stays_low")),
)  # fmt: skip

_OF_DATASETS = (
    _lowest("popqa", "PopQA", (2, 3, 5), (1, 4)),
    _lowest("triviaqa", "TriviaQA", (2,), (1, 3, 4, 5)),
    _lowest("hotpotqa", "HotpotQA", (4,), (1, 2, 3, 5)),
    _lowest("nq", "NQ", (1,), (2, 3, 4, 5)),
    Claim("nq_most_volatile", "Of the Q-Anchored curves that of NQ changes most from layer to layer.",
          (1, 4), (), "several datasets", of_datasets.most_volatile("nq")),
    Claim("datasets_similar", "The Q-Anchored curves of the datasets are alike: nowhere more than 30 points apart.",
          (2, 5), (1, 4), "several datasets", of_datasets.similar),
    Claim("order_kept", "The datasets' Q-Anchored curves have one order and keep it: none change places by 5 points.",
          (2, 3), (5,), "several datasets", of_datasets.order_kept),
    Claim("datasets_converge", "The datasets' Q-Anchored curves are closer together at the end than in the middle.",
          (5,), (3,), "several datasets", of_datasets.converge),
    Claim("anchoring_over_dataset",
          "The group matters more than the dataset: Q and A lie farther apart than the datasets do.",
          (2, 5), (), "several datasets", of_datasets.anchoring_over_dataset),
)  # fmt: skip

_OF_SIZES = (
    Claim("larger_deeper", "The larger model's Q-Anchored curves reach a deeper trough.",
          (1, 2, 3, 4), (), "two model sizes", of_sizes.deeper),
    Claim("larger_a_quarter_greater", "The larger model's Q-Anchored curves reach 20 to 30 % deeper below zero.",
          (1, 2), (3, 4), "two model sizes", of_sizes.a_quarter_greater, "ratio"),
    Claim("larger_longer_decline", "In the larger model the decline takes more layers.",
          (2, 3, 5), (), "two model sizes", of_sizes.longer_decline, "layers"),
    Claim("larger_same_rate", "Both sizes lose about as much per layer, within a quarter.",
          (5,), (), "two model sizes", of_sizes.same_rate, "ratio"),
    Claim("larger_more_volatile", "The larger model's Q-Anchored curves are more jagged from layer to layer.",
          (1, 4), (), "two model sizes", of_sizes.more_volatile, "ratio"),
    Claim("larger_tighter_end", "The larger model's datasets end closer together.",
          (5,), (2,), "two model sizes", of_sizes.tighter_end),
)  # fmt: skip

CLAIMS: tuple[Claim, ...] = (*_OF_CURVES, *_OF_DATASETS, *_OF_SIZES)
"""Every claim."""
