"""Other tokens that receive as much attention as the exact question tokens do.

As many tokens are not as much information: a question's key words may receive several times the attention of the words
around them. Here the tokens are chosen so that the attention that later tokens give them in the clean run, over all
layers and heads, comes as near as possible to that of E_Q. Among choices within a hundredth of it, those whose number
of tokens is nearest E_Q's are preferred, and one of these is drawn at random.

All sets of up to `EXACT` candidates are looked at. Where there are more, chance decides about the others beforehand,
one by one: each is taken with the share that is still wanted of the attention of all that are still there.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from anchorscope.engine.attention_mass import AttentionMass

EXACT = 14
"""Candidates all of whose sets are looked at: sixteen thousand."""
_NEAR = 0.01  # of the wanted mass: nearer than that no two runs of a model in two precisions agree


@cache
def _sets(number: int) -> NDArray[np.float64]:
    """Every set of so many candidates, a row of 0 and 1 each."""
    return ((np.arange(2**number)[:, None] >> np.arange(number)) & 1).astype(np.float64)


def as_much_attention(
    exact: Sequence[int], candidates: Sequence[int], mass: AttentionMass, rng: np.random.Generator
) -> tuple[int, ...]:
    """Some of the candidates, at least one if there is any, that receive as much attention as the exact tokens."""
    if not candidates:
        return ()
    order = [int(key) for key in rng.permutation(np.array(candidates))]
    free, others = order[:EXACT], order[EXACT:]
    wanted, left = mass.of(exact), mass.of(candidates)
    taken: list[int] = []
    for key in others:
        if rng.random() * left < wanted - mass.of(taken):
            taken.append(key)
        left -= mass.of([key])
    sets = _sets(len(free))
    received = sets @ np.array([mass.of([key]) for key in free]) + mass.of(taken)
    number = sets.sum(axis=1) + len(taken)
    off = np.where(number > 0, np.abs(received - wanted), np.inf)
    near = np.flatnonzero(off <= max(_NEAR * wanted, float(off.min())))
    away = np.abs(number[near] - len(exact))
    best = near[away == away.min()]
    chosen = sets[best[int(rng.integers(len(best)))]]
    return tuple(sorted([*taken, *(key for key, inside in zip(free, chosen, strict=True) if inside)]))
