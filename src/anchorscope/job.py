"""A run under way: its folder and recipe, the model once a step needs it, and how many tokens run together."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from anchorscope.checkpoints import records
from anchorscope.engine.batching import Budget
from anchorscope.engine.budget import automatic_tokens
from anchorscope.engine.sequences import SITES
from anchorscope.models.language_model import LanguageModel, ModelIdentity
from anchorscope.models.loading import load as load_model
from anchorscope.models.loading import make_ready
from anchorscope.models.wrapping import wrap
from anchorscope.prepare import refuse_other_weights, solver_device
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe
from anchorscope.store import RunFolder

_IDENTITY = records(ModelIdentity)


@dataclass
class Job:
    """One run."""

    folder: RunFolder
    recipe: Recipe
    loaded: tuple[Any, Any] | None
    """A (model, tokenizer) that is already in memory."""
    progress: Progress

    @cached_property
    def lm(self) -> LanguageModel:
        """The model, loaded when the first step needs it."""
        recipe = self.recipe
        if self.loaded is not None:
            lm = wrap(*self.loaded)
        else:
            make_ready(recipe.model, self.progress)
            self.progress.start("load model", 1)
            lm = load_model(recipe.model, recipe.dtype, recipe.device, recipe.trust_remote_code)
            self.progress.advance(1)
            self.progress.finish()
        refuse_other_weights(recipe, lm, self.folder.stored("model.json", _IDENTITY))
        return lm

    @cached_property
    def identity(self) -> ModelIdentity:
        """Which model this is, once and for all."""
        return self.folder.step("model.json", lambda: self.lm.identity(), _IDENTITY)

    @cached_property
    def budget(self) -> Budget:
        """How many tokens run together: found once, and lowered where memory ran out; a resumed run goes on with it."""
        remember, remembered = self.folder.remember, self.folder.remembered
        if remembered("first_batch_tokens") is None:
            remember("first_batch_tokens", self.recipe.batch_tokens or automatic_tokens(self.lm))
        fits = remembered("batch_tokens") or remembered("first_batch_tokens") or 1
        return Budget(fits, lambda tokens: remember("batch_tokens", tokens))

    @property
    def positions(self) -> tuple[str, ...]:
        """Where probes read: at the final token always, and at the headline position."""
        return tuple(dict.fromkeys(("final", self.recipe.position)))

    @property
    def headline(self) -> tuple[int, int]:
        """(position, site) of the chart, as indices."""
        return self.positions.index(self.recipe.position), SITES.index(self.recipe.site)

    @property
    def solver(self) -> str:
        """Where probes are fitted and draws computed when no model is at hand."""
        return solver_device(self.recipe.device)
