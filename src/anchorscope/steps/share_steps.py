"""The steps of the question share: what every cut took from the evidence, and what follows from it."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from anchorscope.artefacts.step import Step
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import with_log_probs
from anchorscope.evidence.share_tables import (
    HeadlineStates,
    ShareContext,
    headline_states,
    null_areas,
    share_frame,
    share_items_frame,
    tested_share,
    tests_frame,
)
from anchorscope.progress import Silent
from anchorscope.question_share.evidence import Lost
from anchorscope.question_share.shares import ShareDraws, Shares, question_shares
from anchorscope.schema import SHARE_CALL_SCHEMA
from anchorscope.stats.streams import stream
from anchorscope.steps.formats import ARRAYS, FRAMES
from anchorscope.steps.job import FIT_LIBRARIES, TABLE_LIBRARIES
from anchorscope.steps.null_steps import NullSteps

_STATES = "states"  # in the place of a cut's name


class ShareSteps(NullSteps):
    """One dataset of a run, its question share measured."""

    @property
    def headline_place(self) -> int:
        """The headline's number among all places."""
        return self.all_places.index(self.job.headline)

    @cached_property
    def lost(self) -> Step[dict[str, NDArray[np.floating]]]:
        """The parts of every cut's `Lost`, by name."""
        made_from = self.job.made_from(1, FIT_LIBRARIES, "folds", "seed", device=self.job.fits.device)
        parents = (self.principal, self.probes, self.labels)
        return self._step("lost-evidence", parents, made_from, ARRAYS, self._lose)

    def _lose(self) -> dict[str, NDArray[np.floating]]:
        job, principal, place = self.job, self.principal.value, self.headline_place
        shares = job.fits(question_shares, principal, self.share_items, place, title="question share")
        # States are dropped when the run is finished; those of the headline layer are few, and tests ask for them.
        states = headline_states(principal, place, self.share_layer)
        kept = {f"{_STATES}/{name}": one.numpy() for name, one in states._asdict().items()}
        return kept | {
            f"{name}/{part}": array for name, one in shares.found.items() for part, array in one.stored().items()
        }

    @cached_property
    def shares(self) -> Shares:
        """What every cut took."""
        parts: dict[str, dict[str, NDArray[np.floating]]] = {}
        made = self.lost.value | (self.lost_without_knowledge.value if self.job.recipe.random_weights else {})
        for name, array in made.items():
            cut, _, part = name.rpartition("/")
            if cut != _STATES:
                parts.setdefault(cut, {})[part] = array
        found = {name: Lost(**parts[name]) for name in sorted(parts)}  # in one order, read or made
        return Shares(found, self.job.record.identity.n_layers, self.headline_place)

    @property
    def share_layer(self) -> int:
        """The headline layer: where the inner folds' AUC, over all folds, is highest."""
        job = self.job
        probes = self.probes.value[f"{job.recipe.site}/{job.recipe.position}"]
        return int(np.argmax(probes.inner_auc[0].mean(axis=0)))

    @cached_property
    def share_tables(self) -> Step[dict[str, pl.DataFrame]]:
        """question_share, question_share_items, question_share_tests, and what is said of single items."""
        model = self.job.record.identity.name
        made_from = self.job.made_from(
            1, TABLE_LIBRARIES, "site", "position", "bootstrap", "seed", device=self.job.fits.device, model=model
        )
        parents: list[Step[Any]] = [self.lost, self.probes, self.log_probs, self.null_scores]
        parents += [self.lost_without_knowledge] if self.job.recipe.random_weights else []
        return self._step("question-share", parents, made_from, FRAMES, self._share_tables)

    def _share_tables(self) -> dict[str, pl.DataFrame]:
        job, shares, layer, nulls = self.job, self.shares, self.share_layer, self.null_scores.value
        job.progress.start("question share: intervals and tests", 1)
        context = ShareContext(
            job.record.identity.name,
            self.name,
            [item.item_id for item in self.used_items],
            self.groups,
            [(SITES[site], job.positions[position]) for position, site in self.all_places],
            self.n_directions,
        )
        some = next(iter(shares.found.values()))
        draws = ShareDraws(self.weights, some.by_split.shape[-1], stream(job.recipe.seed, "share draws", self.name))
        answers = with_log_probs([item.answer for item in self.used_items], self.log_probs.value)
        confidence = np.array([np.mean(one.log_probs) if one.log_probs else np.nan for one in answers])
        states = HeadlineStates(*(torch.as_tensor(self.lost.value[f"{_STATES}/{name}"]) for name in ("clean", "cut")))
        fits = replace(job.fits, progress=Silent())  # they are part of one line
        tested = tested_share(
            shares, layer, draws, self.share_items, self.used_items, confidence, states, self.n_directions, fits
        )
        at_layer = {name: one[layer] for name, one in nulls.items()}
        ladder = null_areas(at_layer, shares, layer, self.share_items, self.used_items, confidence, draws, fits)
        calls = pl.DataFrame(
            {
                "item_id": context.item_ids,
                "question_share": tested.items.mean,
                "question_share_low": tested.items.low,
                "question_share_high": tested.items.high,
                "pathway_call": tested.calls,
            },
            schema=SHARE_CALL_SCHEMA,
        )
        headline = (job.recipe.site, job.recipe.position)
        found = {
            "question_share": share_frame(shares, draws, context),
            "question_share_items": share_items_frame(shares, context),
            "question_share_tests": tests_frame([*tested.tests, *ladder], context, headline, layer),
            "item_shares": calls,
        }
        job.progress.advance(1)
        job.progress.finish()
        return found
