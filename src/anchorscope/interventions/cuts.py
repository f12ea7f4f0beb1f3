"""Interventions that cut attention edges: the knockout, its controls, other choices of words, edges and method.

The **knockout**: no later position may attend to the question's exact tokens, in any layer; masked before the softmax,
so that what remains renormalises. Its controls: **random**, other tokens that receive as much attention, without which
the chart would say nothing about the question's key words; **none**, nothing cut: what that changes is the noise floor
below which no change counts; **template**, as many tokens of the text that is the same for all questions.

**Subject**, **property**, **content** ask how much depends on which words are cut; groups stay those of the knockout.
An item whose question does not say such words is not run.

**Direct** cuts fewer edges: only those that lead straight from the exact tokens to the answer. What is left of the
effect went straight to the answer, what is gone took a way through other tokens. (The third kind of edges, `outside`,
differs from `all` only among the exact tokens themselves, whom no answer token sees under either.)

**Zeroing** sets the weights of the cut edges to zero after the softmax and does not raise the rest in their place: less
comes in. The paper does not say which of the two it does; where they disagree, a result depends on that choice.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from anchorscope.catalogue import INTERVENTIONS as ENTRIES
from anchorscope.engine.capture import AttentionMass
from anchorscope.interventions.intervention import NOISE_ITEMS, Intervention
from anchorscope.interventions.rewrites import (
    ANSWER_BARE,
    ANSWER_TEMPLATE,
    PATCH_CONTROL,
    PATCH_RANDOM,
    PATCH_SAME,
    PATCH_SELF,
)
from anchorscope.items import Item
from anchorscope.plugins import WithPlugins

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
    """Some of the candidates, at least one if there is any, that receive as much attention as the exact tokens.

    As many tokens are not as much information: a question's key words may receive several times the attention of the
    words around them. The tokens are chosen so that the attention that later tokens give them in the clean run, over
    all layers and heads, comes as near as possible to that of E_Q. Among choices within a hundredth of it, those whose
    number of tokens is nearest E_Q's are preferred, and one of these is drawn at random.

    All sets of up to `EXACT` candidates are compared. Where there are more, chance decides about the others beforehand,
    one by one: each is taken with the share that is still wanted of the attention of all that are still there.
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
    return tuple(sorted([*taken, *(key for key, inside in zip(free, chosen, strict=True) if inside)]))


Mass = AttentionMass | None


def question_tokens(item: Item, rng: np.random.Generator, mass: Mass) -> tuple[int, ...]:
    """The keys of the knockout: the exact question tokens E_Q."""
    return item.located.question_tokens


def random_candidates(item: Item) -> list[int]:
    """Tokens that the random control may cut: after the shared prefix and before the answer, outside E_Q.

    Never the first token of the sequence: models use it as a sink for idle attention, and cutting it breaks everything.
    """
    located = item.located
    exact = set(located.question_tokens)
    return [index for index in range(max(located.prefix_length, 1), located.answer_start) if index not in exact]


def template_candidates(item: Item) -> list[int]:
    """Tokens of the shared prefix, without the first one, the attention sink."""
    return list(range(1, item.located.prefix_length))


def _as_many(item: Item, candidates: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """As many of the candidates as E_Q has tokens, or all of them."""
    wanted = min(len(item.located.question_tokens), len(candidates))
    return tuple(sorted(int(index) for index in rng.choice(candidates, size=wanted, replace=False)))


def _random_tokens(item: Item, rng: np.random.Generator, mass: Mass) -> tuple[int, ...]:
    """Matched in attention; in number where attention was not measured, as for a single question that is scored."""
    if mass is None:
        return _as_many(item, random_candidates(item), rng)
    return as_much_attention(item.located.question_tokens, random_candidates(item), mass, rng)


def _template_tokens(item: Item, rng: np.random.Generator, mass: Mass) -> tuple[int, ...]:
    return _as_many(item, template_candidates(item), rng)


def _nothing(item: Item, rng: np.random.Generator, mass: Mass) -> tuple[int, ...]:
    return ()


def _subject(item: Item, rng: np.random.Generator, mass: Mass) -> tuple[int, ...]:
    return item.located.parts.subject


def _property(item: Item, rng: np.random.Generator, mass: Mass) -> tuple[int, ...]:
    return item.located.parts.property


def _content(item: Item, rng: np.random.Generator, mass: Mass) -> tuple[int, ...]:
    return item.located.parts.content


KNOCKOUT = Intervention(ENTRIES["knockout"], question_tokens, keeps_states=True)
RANDOM = Intervention(
    ENTRIES["random"], _random_tokens, keeps_states=True, candidates=random_candidates, repeats=True, by_attention=True
)
NONE = Intervention(ENTRIES["none"], _nothing, changes=False, max_items=NOISE_ITEMS)
SUBJECT = Intervention(ENTRIES["subject"], _subject, part="subject")
PROPERTY = Intervention(ENTRIES["property"], _property, part="property")
CONTENT = Intervention(ENTRIES["content"], _content, part="content")
TEMPLATE = Intervention(
    ENTRIES["template"], _template_tokens, whole=True, many_passes=True, candidates=template_candidates
)
DIRECT = Intervention(ENTRIES["direct"], question_tokens, edges="direct")
ZEROING = Intervention(ENTRIES["zeroing"], question_tokens, how="zero")


_OWN = {
    one.name: one
    for one in (
        KNOCKOUT,
        RANDOM,
        NONE,
        SUBJECT,
        PROPERTY,
        CONTENT,
        TEMPLATE,
        DIRECT,
        ZEROING,
        PATCH_SAME,
        PATCH_RANDOM,
        PATCH_SELF,
        PATCH_CONTROL,
        ANSWER_TEMPLATE,
        ANSWER_BARE,
    )
}
INTERVENTIONS = WithPlugins(_OWN, "interventions")
"""Every intervention by name."""


def of_experiments(names: Sequence[str]) -> list[Intervention]:
    """The interventions of the named experiments."""
    return [INTERVENTIONS[name] for name in INTERVENTIONS if ENTRIES[name].experiment in names]


def with_draws(interventions: Sequence[Intervention], number: int) -> list[Intervention]:
    """The same, so many draws of each that is drawn several times; the others once."""
    return [replace(one, draw=draw) for one in interventions for draw in range(number if one.repeats else 1)]
