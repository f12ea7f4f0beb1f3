"""A detector in use: a bundle and a model together, which score answers.

detector = anchorscope.Detector.load("runs/demo/detectors/auto")
detector.score("What is the capital of Peru?", "Lima").truth_probability

Items are made as in a run: the same prompts, greedy answers, key words and passes. Only what the detector reads is run:
variants of the same items together in one pass, up to the highest layer that is read, or all layers for confidence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.answers.generate import TOO_LONG, Answer
from anchorscope.answers.label import Label
from anchorscope.answers.template import Prompt, make_template
from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import Question
from anchorscope.datasets.question import asked as asked
from anchorscope.detectors.bundle import read_bundle
from anchorscope.detectors.features import (
    ANSWER_ONLY,
    ANSWER_TOKENS,
    CLEAN,
    COLUMNS,
    QUESTION_ONLY,
    Features,
    Needs,
    StateKey,
    refuse_unknown,
    variant_of,
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
from anchorscope.engine.sequences import SITES, Variant
from anchorscope.errors import UserError
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import key_word_writer, run_answers, run_states
from anchorscope.execute.worker import VariantPart
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.interventions.intervention import Setting, Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel, model_fingerprint, tokenizer_fingerprint
from anchorscope.models.loading import choose_device
from anchorscope.models.loading import load as load_model
from anchorscope.models.wrapping import wrap
from anchorscope.plan.interventions import plan_rewrite
from anchorscope.plan.passes import Place, before_answers, plan_answers, planner_for, shared_tokens
from anchorscope.progress import Progress, Silent
from anchorscope.spans.locate import locate_fitting
from anchorscope.spans.question_spans import Asker, QuestionSpans, question_words

_MOST_BYTES = 2**28  # of states in memory at a time
_FEWEST, _MOST = 64, 4096  # items that are run together
_UNLABELLED = Label(truthful=None, group=0, status="scored", weight=0.0)

States = dict[StateKey, Float[Tensor, "item d_model"]]


@dataclass(frozen=True)
class TextPass:
    """Several runs of the items' own texts, made in one pass."""

    parts: Mapping[str, VariantPart]
    keep: Mapping[str, tuple[Place, ...]]
    """The places whose states each run kept."""

    def states(self, run: str, site: str) -> Float[Tensor, "layer item d_model"]:
        """States of a run; those of `question-only` are of the clean run, before the answer begins."""
        own, position = (CLEAN, 1) if run == QUESTION_ONLY else (run, 0)
        found = self.parts[own].states
        assert found is not None, "a pass asked to keep states keeps them"
        return found[self.keep[own].index((position, SITES.index(site)))]

    def features(self, items: Sequence[Item], needs: Needs, instead: Mapping[str, str] | None = None) -> Features:
        """What is needed; `instead` of a run another is read."""
        other = instead or {}
        states = {
            (run, site, layer): self.states(other.get(run, run), site)[layer] for run, site, layer in needs.states
        }
        columns = {}
        for name in needs.columns:
            if name == ANSWER_TOKENS:
                columns[name] = np.array([len(item.answer.ids) for item in items], dtype=np.float64)
                continue
            column = COLUMNS[name]
            found = self.parts[other.get(column.run, column.run)].answers
            assert found is not None, "a pass asked to score answers scores them"
            columns[name] = np.array([column.made(one) for one in found.by_item()], dtype=np.float64)
        return Features(len(items), states, columns)


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
        self.writer = Writer(lm.tokenizer, setting.template)

    def _lowered(self, tokens: int) -> None:
        """Memory ran out: later passes are planned with so many tokens, too."""
        self.planner = replace(self.planner, batch_tokens=min(tokens, self.planner.batch_tokens))

    def items(self, questions: Sequence[Question], longest: int | None = None) -> list[Item]:
        """Questions with their answers and tokens; an empty answer has none, and neither has a question that does not
        fit the model's context. Where no answer is given the model writes one, of at most `longest` tokens."""
        setting, tokens = self.setting, self.planner.batch_tokens
        most = setting.max_new_tokens if longest is None else min(longest, setting.max_new_tokens)
        work = plan_answers(questions, self.lm.tokenizer, setting.template, most, tokens, self.planner.context)
        return self.located(questions, run_answers(self.executor, work, self.progress), work.prompts)

    def located(
        self, questions: Sequence[Question], answers: Sequence[Answer], prompts: Sequence[Prompt] | None = None
    ) -> list[Item]:
        """The same where the answers are there already, and perhaps the prompts."""
        setting = self.setting

        def words(some: Sequence[Question]) -> list[QuestionSpans]:
            return question_words(setting.exact_tokens, some, self._asker)

        # An answer that was cut off has a state to read as any other; the caller reports that.
        readable = [
            replace(answer, status="answered") if answer.status == "truncated" and answer.text else answer
            for answer in answers
        ]
        located = locate_fitting(self.lm.tokenizer, setting.template, questions, words, readable, prompts)
        rows = zip(questions, answers, located, strict=True)
        return [Item(question, answer, _UNLABELLED, found) for question, answer, found in rows]

    def _asker(self) -> Asker:
        lm, write = self.lm, key_word_writer(self.executor, self.planner.batch_tokens, self.progress)
        return Asker(lm.tokenizer, lm.needs_bos, lm.context, write)

    def at_once(self, needs: Needs) -> int:
        """How many items are best run together: as many as the memory for their states holds."""
        layers = max((layer for _, _, layer in needs.states), default=0) + 1
        places = len({(run, site) for run, site, _ in needs.states}) or 1
        size = places * layers * self.lm.d_model * self.lm.dtype.itemsize
        return int(min(_MOST, max(_FEWEST, _MOST_BYTES // size)))

    def features(self, items: Sequence[Item], needs: Needs) -> Features:
        """What is asked for, of items that have an answer."""
        refuse_unknown(needs, self.lm.n_layers)
        own = Needs(tuple(key for key in needs.states if key[0] != ANSWER_ONLY), needs.columns)
        read = [*own.runs, *(COLUMNS[name].run for name in needs.columns if name in COLUMNS)]
        runs = dict.fromkeys(CLEAN if run == QUESTION_ONLY else run for run in read)
        passed = TextPass({}, {})
        if items and runs:
            variants = {run: variant_of(run, items, self.setting.edges) for run in runs}
            passed = self.run_texts("scoring", items, variants, own)
        found = passed.features(items, own)
        alone = [key for key in needs.states if key[0] == ANSWER_ONLY]
        return replace(found, states={**found.states, **self._answer_alone(items, alone)}) if alone and items else found

    def run_texts(
        self, name: str, items: Sequence[Item], variants: Mapping[str, Variant], needs: Needs, all_layers: bool = False
    ) -> TextPass:
        """All variants of the items' own texts in one pass; what is needed of each is kept."""
        sequences = [item.sequence((self.setting.position,)) for item in items]
        if QUESTION_ONLY in needs.runs:  # read before the answer begins, too
            sequences = [
                replace(sequence, read_at=(*sequence.read_at, sequence.answer_start - 1)) for sequence in sequences
            ]
        keep = {run: _places(needs.states, run) for run in variants}
        stats = any(column in COLUMNS for column in needs.columns)
        prefix = before_answers(shared_tokens(_prefix(items), sequences), sequences)
        work = self.planner.states(name, sequences, prefix, list(variants.values()))
        top = None if stats or all_layers else _top(needs.states)
        work = replace(work, keep=tuple(keep.values()), answer_stats=stats, n_layers=top)
        found = run_states(self.executor, work, self.progress).variants
        return TextPass(dict(zip(variants, found, strict=True)), keep)

    def _answer_alone(self, items: Sequence[Item], keys: Sequence[StateKey]) -> States:
        """States of the answers without their questions."""
        setting = Setting((self.setting.position,), self.setting.edges, 0, lambda: self.writer)
        planned = plan_rewrite(INTERVENTIONS["answer-template"], items, setting)
        sequences = [run.sequence for run in planned.runs]
        keep = _places(keys, ANSWER_ONLY)
        work = self.planner.states("answers alone", sequences, shared_tokens(_prefix(items), sequences))
        part = run_states(self.executor, replace(work, keep=(keep,), n_layers=_top(keys)), self.progress).variants[0]
        passed = TextPass({ANSWER_ONLY: part}, {ANSWER_ONLY: keep})
        return {key: passed.states(*key[:2])[key[2]] for key in keys}


def _prefix(items: Sequence[Item]) -> tuple[int, ...]:
    """Leading tokens of the first item; how many of them the others share is found out."""
    shortest = min(item.located.prefix_length for item in items)
    return items[0].located.input_ids[:shortest]


def _places(keys: Sequence[StateKey], run: str) -> tuple[Place, ...]:
    """Where a run's states are kept: at the detector's position, and of the clean run before the answer."""
    own = [(0, SITES.index(site)) for name, site, _ in keys if name == run]
    before = [(1, SITES.index(site)) for name, site, _ in keys if name == QUESTION_ONLY and run == CLEAN]
    return tuple(dict.fromkeys([*own, *before]))


def _top(keys: Sequence[StateKey]) -> int:
    """How many blocks have to be run."""
    return max(layer for _, _, layer in keys) + 1


def refuse_other_model(trained: TrainedDetector, lm: LanguageModel) -> tuple[str, ...]:
    """Refuses another shape, tokenizer, template or other weights; what is different and may be, as warnings."""
    setting, found = trained.setting, str(lm.dtype).removeprefix("torch.")
    shape, own = (lm.n_layers, lm.d_model), (setting.n_layers, setting.d_model)
    if shape != own:
        raise _other(trained, lm, f"it has {shape[0]} layers of width {shape[1]} instead of {own[0]} of {own[1]}")
    if tokenizer_fingerprint(lm.tokenizer) != setting.tokenizer:
        raise _other(trained, lm, "its tokenizer is another one")
    if make_template(setting.template.kind, lm.tokenizer, lm.needs_bos) != setting.template:
        raise UserError(
            f"Detector {trained.name!r} was trained with another {setting.template.kind} prompt than this anchorscope "
            f"writes for the model (its text or its examples have changed); use the version that made it"
            f"{_version(trained)}, or train it again with anchorscope detect."
        )
    if _fingerprint(setting, lm) == setting.fingerprint:
        return () if found == setting.dtype else (f"dtype differs: trained in {setting.dtype}, scored in {found}",)
    lost = "" if found == setting.dtype else f" (or were rounded: it runs in {found}, training in {setting.dtype})"
    raise _other(trained, lm, f"its weights are others{lost}")


def _fingerprint(setting: DetectorSetting, lm: LanguageModel) -> str:
    """Of the model, in the precision of the training."""
    wanted = getattr(torch, setting.dtype, None)
    return model_fingerprint(lm.model, wanted if isinstance(wanted, torch.dtype) and wanted != lm.dtype else None)


def _other(trained: TrainedDetector, lm: LanguageModel, why: str) -> UserError:
    return UserError(
        f"Detector {trained.name!r} was trained on model {trained.setting.model!r} and does not fit {lm.name!r}: "
        f"{why}; score with that model ({trained.setting.source}), or train a detector on this one (anchorscope "
        f"detect)."
    )


def _version(trained: TrainedDetector) -> str:
    made = trained.card.versions.get("anchorscope")
    return f" ({made})" if made else ""


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
        given = [(pair, None) if isinstance(pair, str) else pair for pair in pairs]
        return self.score_questions([asked(*one, place) for place, one in enumerate(given)], risk=risk)

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
        if not read:  # nothing to run, and no states to decide on
            return self.scores_of(items, Features(0, {}, {}), risk)
        return self.scores_of(items, self.session.features(read, self.trained.needs), risk)

    def scores_of(self, items: Sequence[Item], features: Features, risk: float | None = None) -> list[Score]:
        """What is said of items, from what was read of those that have tokens, in their order."""
        notes = (*self._notes, *threshold_notes(self.trained, risk))
        if not features.n_items:
            return [self._unread(item, notes) for item in items]
        _refuse_no_numbers(features)
        decided = decide(self.trained, features)
        verdicts = decided.verdicts(self.trained.threshold(risk))
        scores, place = [], 0
        for item in items:
            if item.tokens is None:
                scores.append(self._unread(item, notes))
                continue
            question, answer = item.question.question, item.answer.text
            pathway = None if decided.pathway is None else float(decided.pathway[place])
            scores.append(
                Score(
                    question,
                    answer,
                    float(decided.probability[place]),
                    float(decided.log_odds[place]),
                    verdicts[place],
                    (*notes, *self._warnings(item)),
                    pathway,
                )
            )
            place += 1
        return scores

    def _unread(self, item: Item, notes: Sequence[str]) -> Score:
        """What is said of an answer without a word, and of a question that the model cannot read."""
        why = "the answer is empty"
        if item.answer.status == TOO_LONG:
            needs, most = item.answer.needs, self.session.lm.context
            why = f"question and answer may take {needs:,} tokens, and the model reads at most {most:,}"
        return Score(item.question.question, item.answer.text, None, None, ABSTAIN, (*notes, why))

    def _warnings(self, item: Item) -> list[str]:
        """What may make an item's number worth less."""
        found, needs, span = [], self.trained.needs, self.trained.range
        cuts = KNOCKOUT in needs.runs or any(COLUMNS[name].run == KNOCKOUT for name in needs.columns if name in COLUMNS)
        if cuts and not item.located.question_tokens:
            found.append("no key words found: nothing could be cut")
        if item.answer.status == "truncated":
            found.append(f"the answer is truncated after {len(item.answer.ids)} tokens")
        longest, length = None if span is None else span.longest, len(item.located.input_ids)
        if longest is not None and length > longest:
            found.append(f"context: {length} tokens with the prompt, {longest} at most in training")
        return found

    def __repr__(self) -> str:
        return f"Detector({self.trained.name!r}, model={self.trained.setting.model!r})"

    def _repr_html_(self) -> str:
        setting, card = self.trained.setting, self.card
        rows = [
            ("model", setting.model),
            ("reads", f"{setting.position}, {setting.template.kind} prompt"),
            ("trained on", card.data),
            *(("limit", text) for text in card.limits),
        ]
        lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows if text)
        return f"<table><caption>Detector {escape(self.trained.name)}</caption>{lines}</table>"


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


def _refuse_no_numbers(features: Features) -> None:
    for (run, site, layer), states in features.states.items():
        if not bool(states.isfinite().all()):
            raise UserError(
                f"The {run} states at {site} of layer {layer} hold NaN or infinity; run the model in float32 "
                f"(--dtype float32)."
            )
