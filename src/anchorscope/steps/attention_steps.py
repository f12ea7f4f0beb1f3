"""The step that weighs tokens: how much attention each one of the used items receives in the clean run."""

from functools import cached_property

from anchorscope.artefacts.formats import records
from anchorscope.artefacts.step import Step
from anchorscope.engine.attention_mass import AttentionMass
from anchorscope.evidence.attention_mass import run_attention_mass
from anchorscope.steps.item_steps import ItemSteps
from anchorscope.steps.job import MODEL_LIBRARIES


class AttentionSteps(ItemSteps):
    """One dataset of a run, its tokens weighed by attention."""

    @cached_property
    def attention_mass(self) -> Step[list[AttentionMass]]:
        """Of every used item in turn."""
        made_from = self.job.made_from(1, MODEL_LIBRARIES, "edges")
        parents = (self.labels, self.tokens, self.job.model)
        return self._step("attention-mass", parents, made_from, records(list[AttentionMass]), self._weigh)

    def _weigh(self) -> list[AttentionMass]:
        job = self.job
        return run_attention_mass(
            job.executor, job.planner, self.used_items, job.positions, job.recipe.edges, job.progress
        )

    def masses(self) -> dict[str, AttentionMass]:
        """The same by the items' names."""
        names = [item.item_id for item in self.used_items]
        return dict(zip(names, self.attention_mass.value, strict=True))
