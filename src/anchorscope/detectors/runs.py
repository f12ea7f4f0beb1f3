"""The runs and numbers that detectors name, and how each is made for an item that is being scored.

`clean`, `knockout` and strengthened attention (`boost-question-1`) are variants of the item's own text and run together
in one pass; `question-only` is the clean run, read before the answer begins; `answer-only` is another text. Random cuts
and random weights are controls: no detector that reads them is for use.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from anchorscope.catalogue import KNOCKOUT
from anchorscope.detectors.features import CLEAN, Needs
from anchorscope.engine.sequences import CLEAN as CLEAN_VARIANT
from anchorscope.engine.sequences import NO_CUT, SITES, Cut, Variant
from anchorscope.errors import UserError
from anchorscope.evidence.further_runs import answer_boost, question_boost
from anchorscope.items import Item

QUESTION_ONLY, ANSWER_ONLY = "question-only", "answer-only"
BOOST_QUESTION, BOOST_ANSWER = "boost-question-", "boost-answer-"
"""What the names of runs with strengthened attention begin with; the strength α follows."""
ANSWER_TOKENS = "answer_tokens"

Statistics = Float[np.ndarray, "statistic answer_token"]
"""Log-probability, margin and entropy of an answer's tokens."""


@dataclass(frozen=True)
class ConfidenceColumn:
    """A number that is made of what the model thinks of the answer's tokens in one run."""

    run: str
    made: Callable[[Statistics], float]


COLUMNS = {
    "log_prob_mean": ConfidenceColumn(CLEAN, lambda found: float(found[0].mean())),
    "log_prob_min": ConfidenceColumn(CLEAN, lambda found: float(found[0].min())),
    "log_prob_first": ConfidenceColumn(CLEAN, lambda found: float(found[0, 0])),
    "margin_first": ConfidenceColumn(CLEAN, lambda found: float(found[1, 0])),
    "entropy_mean": ConfidenceColumn(CLEAN, lambda found: float(found[2].mean())),
    "knockout_log_prob_mean": ConfidenceColumn(KNOCKOUT, lambda found: float(found[0].mean())),
    "knockout_log_prob_min": ConfidenceColumn(KNOCKOUT, lambda found: float(found[0].min())),
}
"""Confidence by name, as `run --keep detection` names its columns."""


def refuse_unknown(needs: Needs, n_layers: int) -> None:
    """A detector that reads what cannot be measured of a new item is refused before anything is run."""
    known = (CLEAN, KNOCKOUT, QUESTION_ONLY, ANSWER_ONLY)
    for run, site, layer in needs.states:
        if run not in known and boost_of(run) is None:
            raise UserError(
                f"The detector reads states of the run {run!r}, which is not made of new answers: it can be compared "
                f"(anchorscope detect) but not used for scoring; choose another detector."
            )
        if site not in SITES or not 0 <= layer < n_layers:
            raise UserError(
                f"The detector reads site {site!r} of layer {layer}; the model has {', '.join(SITES)} of layers 0 to "
                f"{n_layers - 1}. Train it on this model."
            )
    for name in needs.columns:
        if name not in COLUMNS and name != ANSWER_TOKENS:
            raise UserError(
                f"The detector reads {name!r}, which is not measured of new answers (known: "
                f"{', '.join((*COLUMNS, ANSWER_TOKENS))}); choose another detector."
            )


def boost_of(run: str) -> tuple[str, float] | None:
    """Which attention a run strengthens, and by how much; None for other runs."""
    for start in (BOOST_QUESTION, BOOST_ANSWER):
        if run.startswith(start):
            try:
                alpha = float(run.removeprefix(start))
            except ValueError:
                return None
            return (start, alpha) if -1 <= alpha < math.inf else None
    return None


def variant_of(run: str, items: Sequence[Item], edges: str) -> Variant:
    """How a pass runs the items' own texts; an item with nothing to cut runs as it is."""
    if run in (CLEAN, QUESTION_ONLY):
        return CLEAN_VARIANT
    return Variant({index: _cut(run, item, edges) for index, item in enumerate(items)})


def _cut(run: str, item: Item, edges: str) -> Cut:
    boost = boost_of(run)
    if boost is not None and boost[0] == BOOST_ANSWER:
        return answer_boost(item, boost[1])
    if not item.located.question_tokens:
        return NO_CUT
    if boost is not None:
        return question_boost(item, edges, boost[1])
    return Cut(keys=item.located.question_tokens, edges=edges)
