"""Interventions that cut attention edges: the knockout, its controls, other choices of words, edges and method.

The **knockout**: no later position may attend to the question's exact tokens, in any layer; masked before the softmax,
so that the rest renormalises. Controls: **random**, other tokens that receive as much attention; **none**, the noise
floor; **template**, as many tokens of the shared text. **Subject**, **property**, **content** cut only such words.
**Direct** cuts only the edges from the exact tokens to the answer. **Zeroing** sets the weights to zero after the
softmax and leaves the rest; the paper doesn't say which it does.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.template import CONTEXT, THINKING
from anchorscope.catalogue import INTERVENTIONS as ENTRIES
from anchorscope.engine.capture import AttentionMass
from anchorscope.interventions.intervention import NOISE_ITEMS, Intervention
from anchorscope.interventions.rewrites import REWRITES
from anchorscope.items import Item
from anchorscope.plugins import WithPlugins

EXACT = 14
"""Candidates of which all sets are compared: sixteen thousand."""
_NEAR = 0.01  # of the wanted mass: nearer than that no two runs of a model in two precisions agree


@cache
def _sets(number: int) -> NDArray[np.float64]:
    """Every set of that many candidates, a row of 0 and 1 each."""
    return ((np.arange(2**number)[:, None] >> np.arange(number)) & 1).astype(np.float64)


def as_much_attention(
    exact: Sequence[int],
    candidates: Sequence[int],
    mass: AttentionMass,
    rng: np.random.Generator,
) -> tuple[int, ...]:
    """Some of the candidates, at least one if there is any, that receive as much attention as the exact tokens.

    Key words may receive several times the attention of the words around them, so equal counts aren't enough. Among the
    sets whose attention is within a hundredth of E_Q's, or nearest to it, those nearest in number of tokens are
    preferred, and one is drawn at random. All sets of up to `EXACT` candidates are compared; beyond that, each further
    candidate is taken beforehand with the share still wanted of the remaining attention.
    """
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
    return tuple(
        sorted(
            [*taken, *(key for key, inside in zip(free, chosen, strict=True) if inside)]
        )
    )


Mass = AttentionMass | None


def question_tokens(
    item: Item, rng: np.random.Generator, mass: Mass
) -> tuple[int, ...]:
    """The keys of the knockout: the exact question tokens E_Q."""
    return item.located.question_tokens


def random_candidates(item: Item) -> list[int]:
    """Between prefix and answer, outside E_Q and what else the answer may rest on (passages, thinking).

    Never the first token, which models use as a sink for idle attention.
    """
    located = item.located
    exact = {
        *located.question_tokens,
        *located.source_tokens(CONTEXT),
        *located.source_tokens(THINKING),
    }
    return [
        index
        for index in range(max(located.prefix_length, 1), located.answer_start)
        if index not in exact
    ]


def template_candidates(item: Item) -> list[int]:
    """Tokens of the shared prefix, without the first one, the attention sink."""
    return list(range(1, item.located.prefix_length))


def _as_many(
    item: Item, candidates: Sequence[int], rng: np.random.Generator
) -> tuple[int, ...]:
    wanted = min(len(item.located.question_tokens), len(candidates))
    return tuple(
        sorted(
            int(index) for index in rng.choice(candidates, size=wanted, replace=False)
        )
    )


def _random_tokens(item: Item, rng: np.random.Generator, mass: Mass) -> tuple[int, ...]:
    """Matched in attention; in number where attention was not measured, as for a single question that is scored."""
    if mass is None:
        return _as_many(item, random_candidates(item), rng)
    return as_much_attention(
        item.located.question_tokens, random_candidates(item), mass, rng
    )


KNOCKOUT = Intervention(ENTRIES["knockout"], question_tokens, keeps_states=True)
RANDOM = Intervention(
    ENTRIES["random"],
    _random_tokens,
    keeps_states=True,
    candidates=random_candidates,
    repeats=True,
    by_attention=True,
)
NONE = Intervention(
    ENTRIES["none"], lambda item, rng, mass: (), changes=False, max_items=NOISE_ITEMS
)
_OTHERS = (
    Intervention(
        ENTRIES["subject"],
        lambda item, rng, mass: item.located.parts.subject,
        part="subject",
    ),
    Intervention(
        ENTRIES["property"],
        lambda item, rng, mass: item.located.parts.property,
        part="property",
    ),
    Intervention(
        ENTRIES["content"],
        lambda item, rng, mass: item.located.parts.content,
        part="content",
    ),
    Intervention(
        ENTRIES["template"],
        lambda item, rng, mass: _as_many(item, template_candidates(item), rng),
        whole=True,
        many_passes=True,
        candidates=template_candidates,
    ),
    Intervention(ENTRIES["direct"], question_tokens, edges="direct"),
    Intervention(ENTRIES["zeroing"], question_tokens, how="zero"),
)
_OWN = {
    intervention.name: intervention
    for intervention in (KNOCKOUT, RANDOM, NONE, *_OTHERS, *REWRITES)
}
INTERVENTIONS = WithPlugins(_OWN, "interventions")


def of_experiments(names: Sequence[str]) -> list[Intervention]:
    return [
        INTERVENTIONS[name]
        for name in INTERVENTIONS
        if ENTRIES[name].experiment in names
    ]


def with_draws(
    interventions: Sequence[Intervention], number: int
) -> list[Intervention]:
    """The same, that many draws of each that is drawn several times; the others once."""
    return [
        replace(entry, draw=draw)
        for entry in interventions
        for draw in range(number if entry.repeats else 1)
    ]
