"""A detector in use: a bundle and a model together, which score answers.

detector = anchorscope.Detector.load("runs/demo/detectors/bundles/auto")
detector.score("What is the capital of Peru?", "Lima").truth_probability

Items are made as in a run: the same prompts, greedy answers and passes. Only what the detector reads is run: one pass
up to the highest layer that is read, or all layers for confidence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorscope.answers.generate import TOO_LONG
from anchorscope.answers.label import Label
from anchorscope.answers.template import make_template
from anchorscope.datasets.question import Question
from anchorscope.datasets.question import asked as asked
from anchorscope.detectors.bundle import read_bundle
from anchorscope.detectors.features import (
    ANSWER_TOKENS,
    CLEAN,
    COLUMNS,
    QUESTION_ONLY,
    RAUQ,
    TEXT,
    Features,
    Needs,
    StateKey,
    refuse_unknown,
    texts_of,
)
from anchorscope.detectors.trained import (
    ABSTAIN,
    Card,
    DetectorSetting,
    Score,
    TrainedDetector,
    decide,
    threshold_notes,
)
from anchorscope.engine.capture import PREVIOUS, AttentionMass
from anchorscope.engine.decode import Sampling
from anchorscope.engine.sequences import CLEAN as CLEAN_VARIANT
from anchorscope.engine.sequences import SITES, Variant
from anchorscope.errors import UserError
from anchorscope.evidence.further_runs import rauq
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_answers, run_states
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel, model_fingerprint, tokenizer_fingerprint
from anchorscope.models.loading import choose_device
from anchorscope.models.loading import load as load_model
from anchorscope.models.wrapping import wrap
from anchorscope.plan.passes import Place, before_answers, plan_answers, planner_for, shared_tokens
from anchorscope.progress import Progress, Silent
from anchorscope.spans.locate import locate_fitting

_MOST_BYTES = 2**28  # of states in memory at a time
_FEWEST, _MOST = 64, 4096  # items that are run together
_UNLABELLED = Label(truthful=None, group=0, status="scored", weight=0.0)


def _features(
    items: Sequence[Item],
    needs: Needs,
    part: Any = None,
    places: tuple[Place, ...] = (),
    attention: Mapping[int, AttentionMass] | None = None,
) -> Features:
    """What is needed, of one run of the items' own texts: states at `places`, and attention to the token before."""

    def column(name: str) -> np.ndarray:
        if name == TEXT:
            return texts_of((item.question.question, item.answer.text) for item in items)
        if name == ANSWER_TOKENS:
            return np.array([float(len(item.answer.ids)) for item in items])
        if name == RAUQ:
            of_items = enumerate(part.answers.by_item())
            return np.array([rauq(stats[0], (attention or {})[item].previous) for item, stats in of_items])
        return np.array([COLUMNS[name](statistics) for statistics in part.answers.by_item()])

    states = {key: part.states[places.index(_place(key)), key[2]] for key in needs.states}
    return Features(len(items), states, {name: column(name) for name in needs.columns})


def _place(key: StateKey) -> Place:
    """Where a state is read: at the detector's position, or before the answer begins."""
    return int(key[0] == QUESTION_ONLY), SITES.index(key[1])


class ScoringSession:
    """One model, the prompt of one detector, and passes over items."""

    def __init__(
        self,
        lm: LanguageModel,
        setting: DetectorSetting,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.lm, self.setting = lm, setting
        self.progress = progress or Silent()
        self.planner = planner_for(lm, batch_tokens)
        self.executor = LocalExecutor(lambda: lm, lowered=self._lowered)

    def _lowered(self, tokens: int) -> None:
        """Memory ran out: later passes are planned with so many tokens, too."""
        self.planner = replace(self.planner, batch_tokens=min(tokens, self.planner.batch_tokens))

    def items(
        self, questions: Sequence[Question], longest: int | None = None, sampling: Sampling | None = None
    ) -> list[Item]:
        """Questions with their answers and tokens; an empty answer has none, and neither has a question that does not
        fit the model's context. Where no answer is given the model writes one, of at most `longest` tokens."""
        lm, setting, tokens = self.lm, self.setting, self.planner.batch_tokens
        most = setting.max_new_tokens if longest is None else longest
        work = plan_answers(questions, lm.tokenizer, setting.template, most, tokens, self.planner.context)
        answers = run_answers(self.executor, replace(work, sampling=sampling), self.progress)
        # An answer that was cut off has a state to read as any other; the caller reports that.
        readable = [
            replace(answer, status="answered") if answer.status == "truncated" and answer.text else answer
            for answer in answers
        ]
        located = locate_fitting(
            lm.tokenizer, setting.template, questions, setting.exact_tokens, readable, work.prompts
        )
        rows = zip(questions, answers, located, strict=True)
        return [Item(question, answer, _UNLABELLED, found) for question, answer, found in rows]

    def at_once(self, needs: Needs) -> int:
        """How many items are best run together: as many as the memory for their states holds."""
        layers = max((layer for _, _, layer in needs.states), default=0) + 1
        places = len({(run, site) for run, site, _ in needs.states}) or 1
        size = places * layers * self.lm.d_model * self.lm.dtype.itemsize
        return int(min(_MOST, max(_FEWEST, _MOST_BYTES // size)))

    def features(self, items: Sequence[Item], needs: Needs) -> Features:
        """What is asked for, of items that have an answer."""
        refuse_unknown(needs, self.lm.n_layers)
        return self.features_of_runs("scoring", items, {CLEAN: CLEAN_VARIANT}, needs)[CLEAN]

    def features_of_runs(
        self, name: str, items: Sequence[Item], variants: Mapping[str, Variant], needs: Needs
    ) -> dict[str, Features]:
        """The same in several runs of the items' texts, in one pass no further than the highest layer that is read."""
        if not needs.reads_model:
            return {run: _features(items, needs) for run in variants}
        sequences = [item.sequence((self.setting.position,)) for item in items]
        if QUESTION_ONLY in needs.runs:  # read before the answer begins, too
            sequences = [
                replace(sequence, read_at=(*sequence.read_at, sequence.answer_start - 1)) for sequence in sequences
            ]
        places = tuple(dict.fromkeys(map(_place, needs.states)))
        stats = any(column in (*COLUMNS, RAUQ) for column in needs.columns)
        shortest = min(item.located.prefix_length for item in items)
        shared = shared_tokens(sequences)[:shortest]
        work = self.planner.states(name, sequences, before_answers(shared, sequences), list(variants.values()))
        top = None if stats else max(layer for _, _, layer in needs.states) + 1
        work = replace(work, keep=(places,) * len(variants), answer_stats=stats, n_layers=top)
        if RAUQ in needs.columns:
            work = replace(work, attention=PREVIOUS)
        passed = run_states(self.executor, work, self.progress)
        return {
            run: _features(items, needs, part, places, passed.attention)
            for run, part in zip(variants, passed.variants, strict=True)
        }


def refuse_other_model(trained: TrainedDetector, lm: LanguageModel) -> tuple[str, ...]:
    """Refuses another shape, tokenizer, template or other weights; another precision is a warning."""
    setting, dtype = trained.setting, str(lm.dtype).removeprefix("torch.")
    difference = _difference(setting, lm, dtype)
    if difference is not None:
        raise UserError(
            f"Detector {trained.name!r} was trained on model {setting.model!r} and does not fit {lm.name!r}: "
            f"{difference}; score with that model ({setting.source}) and anchorscope "
            f"{trained.card.versions.get('anchorscope', '')}, or train a detector on this one (anchorscope detect)."
        )
    return () if dtype == setting.dtype else (f"dtype differs: trained in {setting.dtype}, scored in {dtype}",)


def _difference(setting: DetectorSetting, lm: LanguageModel, dtype: str) -> str | None:
    """What makes a model another one than that of the training."""
    shape, own = (lm.n_layers, lm.d_model), (setting.n_layers, setting.d_model)
    if shape != own:
        return f"it has {shape[0]} layers of width {shape[1]} instead of {own[0]} of {own[1]}"
    if tokenizer_fingerprint(lm.tokenizer) != setting.tokenizer:
        return "its tokenizer is another one"
    if make_template(setting.template.kind, lm.tokenizer, lm.needs_bos) != setting.template:
        return f"its {setting.template.kind} prompt is another one (its text or its examples have changed)"
    wanted = getattr(torch, setting.dtype, None)
    precision = wanted if isinstance(wanted, torch.dtype) and wanted != lm.dtype else None
    if model_fingerprint(lm.model, precision) == setting.fingerprint:
        return None
    lost = "" if dtype == setting.dtype else f" (or were rounded: it runs in {dtype}, training in {setting.dtype})"
    return f"its weights are others{lost}"


class Detector:
    """A trained detector on its model."""

    def __init__(
        self,
        trained: TrainedDetector,
        lm: LanguageModel,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Refuses a model that is not the one of the training."""
        refuse_unknown(trained.needs, lm.n_layers)
        self.trained = trained
        self._notes = refuse_other_model(trained, lm)
        self.session = ScoringSession(lm, trained.setting, batch_tokens, progress)

    @classmethod
    def load(
        cls,
        bundle: str | Path | TrainedDetector,
        model: Any = None,
        tokenizer: Any = None,
        device: str = "auto",
        dtype: str = "auto",
        *,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> "Detector":
        """The detector of a bundle on its model.

        `model` is a name, or a transformers model that is already loaded, then with its `tokenizer`; without it the
        model of the training is loaded, in the precision of the training unless another is asked for.
        """
        trained = bundle if isinstance(bundle, TrainedDetector) else read_bundle(bundle)
        refuse_unknown(trained.needs, trained.setting.n_layers)
        return cls(trained, model_for(trained, model, tokenizer, device, dtype, progress), batch_tokens, progress)

    @property
    def card(self) -> Card:
        """What it was trained on, how good it is, what it cannot do."""
        return self.trained.card

    def score(self, question: str, answer: str | None = None, *, risk: float | None = None) -> Score:
        """One answer; without one, the model answers itself, greedily."""
        return self.score_many([(question, answer)], risk=risk)[0]

    def score_many(self, pairs: Iterable[tuple[str, str | None] | str], *, risk: float | None = None) -> list[Score]:
        """Answers to many questions, in order: pairs of question and answer, or questions alone."""
        given = ((pair, None) if isinstance(pair, str) else pair for pair in pairs)
        return self.score_questions([asked(*pair, place) for place, pair in enumerate(given)], risk=risk)

    def score_questions(self, questions: Sequence[Question], *, risk: float | None = None) -> list[Score]:
        """The same for questions of a dataset, whose subjects and own answers are used where they are known."""
        self.trained.threshold(risk)  # refused before anything is run
        found: list[Score] = []
        at_once = self.session.at_once(self.trained.needs)
        for first in range(0, len(questions), at_once):
            items = self.session.items(questions[first : first + at_once])
            found += self.score_items(items, risk=risk)
        return found

    def score_items(self, items: Sequence[Item], *, risk: float | None = None) -> list[Score]:
        """Scores of items that the session has made: read, decided, judged. The answers are taken as they are."""
        read = [item for item in items if item.tokens is not None]
        notes = (*self._notes, *threshold_notes(self.trained, risk))
        if not read:  # nothing to run, and no states to decide on
            return [self._unread(item, notes) for item in items]
        features = self.session.features(read, self.trained.needs)
        for (run, site, layer), states in features.states.items():
            if not bool(states.isfinite().all()):
                raise UserError(
                    f"The {run} states at {site} of layer {layer} hold NaN or infinity; run the model in float32 "
                    f"(--dtype float32)."
                )
        decided = decide(self.trained, features)
        verdicts = decided.verdicts(self.trained.threshold(risk))
        rows = zip(decided.probability.tolist(), decided.log_odds.tolist(), verdicts, strict=True)
        return [
            self._unread(item, notes)
            if item.tokens is None
            else Score(item.question.question, item.answer.text, *next(rows), (*notes, *self._warnings(item)))
            for item in items
        ]

    def _unread(self, item: Item, notes: Sequence[str]) -> Score:
        """The score of an answer without a word, and of a question that the model cannot read."""
        why = unread_reason(item, self.session.lm.context)
        return Score(item.question.question, item.answer.text, None, None, ABSTAIN, (*notes, why))

    def _warnings(self, item: Item) -> list[str]:
        """What may make an item's number worth less."""
        found, span = [], self.trained.range
        if item.answer.status == "truncated":
            found.append(f"the answer is truncated after {len(item.answer.ids)} tokens")
        longest, length = None if span is None else span.longest, len(item.located.input_ids)
        if longest is not None and length > longest:
            found.append(f"context: {length} tokens with the prompt, {longest} at most in training")
        return found

    def __repr__(self) -> str:
        return f"Detector({self.trained.name!r}, model={self.trained.setting.model!r})"


def unread_reason(item: Item, context: int | None) -> str:
    """Why an item has no tokens to read."""
    if item.answer.status != TOO_LONG:
        return "the answer is empty"
    return f"question and answer may take {item.answer.needs:,} tokens, and the model reads at most {context:,}"


def model_for(
    trained: TrainedDetector,
    model: Any = None,
    tokenizer: Any = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> LanguageModel:
    """The model of a detector: what is given, or loaded from where it was in training."""
    if isinstance(model, LanguageModel):
        return model
    if model is not None and not isinstance(model, str):
        if tokenizer is None:
            raise UserError("A model that is already loaded needs its tokenizer; pass tokenizer=... beside it.")
        return wrap(model, tokenizer)
    source = model or trained.setting.source
    precision = trained.setting.dtype if dtype == "auto" else dtype
    return load_model(source, precision, choose_device(device), progress=progress)
