"""Interventions that cut attention edges: the knockout, its controls, other choices of words, edges and method.

The **knockout**: no later position may attend to the question's exact tokens, in any layer; masked before the softmax,
so that what remains renormalises. Its controls: **random**, other tokens that receive as much attention, without which
the chart would say nothing about the question's key words; **none**, nothing cut: what that changes is the noise floor
below which no change counts; **template**, as many tokens of the text that is the same for all questions.

**Subject**, **property**, **content** ask how much hangs on which words are cut; groups stay those of the knockout. An
item whose question does not say such words is not run.

**Direct** cuts fewer edges: only those that lead straight from the exact tokens to the answer. What is left of the
effect went straight to the answer, what is gone took a way through other tokens. (The third kind of edges, `outside`,
differs from `all` only among the exact tokens themselves, whom no answer token sees under either.)

**Zeroing** sets the weights of the cut edges to zero after the softmax and does not raise the rest in their place: less
comes in. The paper does not say which of the two it does; where they disagree, a result hangs on that choice.
"""

from collections.abc import Sequence

import numpy as np

from anchorscope.catalogue import INTERVENTIONS as ENTRIES
from anchorscope.engine.attention_mass import AttentionMass
from anchorscope.interventions.intervention import Intervention
from anchorscope.interventions.mass_matched import as_much_attention
from anchorscope.items import Item

NOISE_ITEMS = 125
"""Items in a no-op control: where none of them flips, the flip rate is below 3 % with 97.5 % confidence."""

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
