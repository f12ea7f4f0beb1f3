"""What the analyses of one dataset are given, put together from what the steps have made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.conversation import Conversation
from anchorscope.evidence.effects import Effect
from anchorscope.evidence.experiments.ground import Asked, Ground, Settings
from anchorscope.evidence.items import Measured
from anchorscope.evidence.tables import Evidence
from anchorscope.interventions.intervention import ItemTokens
from anchorscope.interventions.rewriting import Spoken
from anchorscope.job import Job
from anchorscope.probes.crossfit import ProbeSet, Splits
from anchorscope.probes.scoring import Scorer
from anchorscope.results import confidence
from anchorscope.spans.locate import Located
from anchorscope.stats.estimate import group_weights


@dataclass(frozen=True)
class Material:
    """One dataset, as far as it has been measured."""

    name: str
    talk: Conversation
    everyone: Sequence[Asked]
    used: Sequence[int]
    tokens: Callable[[], list[ItemTokens]]
    states: Tensor
    """Clean states [position, site, layer, item, d_model]."""
    probe_sets: Mapping[str, ProbeSet]
    scorer: Callable[[], Scorer]
    splits: Splits
    groups: NDArray[np.int64]
    places: Mapping[tuple[str, str], Measured]
    effects: Sequence[Effect]
    refits: Mapping[str, NDArray[np.floating]]


def spoken_items(talk: Conversation, items: Sequence[Asked], used: Sequence[int],
                 places: Sequence[Located], tokens: Sequence[ItemTokens]) -> list[Spoken]:  # fmt: skip
    """The used items, as interventions that rewrite them see them."""
    found = []
    for index, place, one in zip(used, places, tokens, strict=True):
        assert place.words is not None, "tokens were located without words"
        found.append(Spoken(items[index].question, place.words, talk.prompts[index], items[index].answer, one))
    return found


def evidence_of(job: Job, material: Material) -> Evidence:
    """What the tables of one dataset are made from."""
    recipe = job.recipe
    answered = [material.everyone[index] for index in material.used]
    sure = [confidence(one.answer) for one in answered]
    return Evidence(
        model=job.identity.name,
        dataset=material.name,
        item_ids=[one.question.item_id for one in answered],
        questions=[one.question.question for one in answered],
        answers=[one.answer.text for one in answered],
        relations=[one.question.relation for one in answered],
        confidence_mean=[mean for mean, _ in sure],
        confidence_min=[least for _, least in sure],
        variants={one.intervention: one.variant for one in material.effects},
        places=material.places,
        refits=material.refits,
        headline=(recipe.site, recipe.position),
        weights=_weights(job, material),
    )


def ground_of(job: Job, material: Material) -> Ground:
    """What the further experiments of one dataset stand on."""
    recipe, (position, site) = job.recipe, job.headline
    return Ground(
        dataset=material.name,
        model=lambda: job.lm,
        talk=material.talk,
        everyone=material.everyone,
        used=np.array(material.used, dtype=np.int64),
        tokens=material.tokens(),
        states=material.states[position, site],
        probes=material.probe_sets[f"{recipe.site}/{recipe.position}"],
        scorer=material.scorer,
        splits=material.splits,
        place=material.places[recipe.site, recipe.position],
        refits=material.refits,
        effects={one.intervention: one for one in material.effects},
        headline=job.headline,
        weights=_weights(job, material),
        settings=Settings(recipe.seed, recipe.edges, recipe.evidence_items, recipe.window, recipe.max_new_tokens),
        budget=job.budget,
        device=job.solver,
        progress=job.progress,
    )


def _weights(job: Job, material: Material) -> NDArray[np.float32]:
    return group_weights(material.groups, job.recipe.bootstrap, np.random.default_rng([job.recipe.seed, 3]))
