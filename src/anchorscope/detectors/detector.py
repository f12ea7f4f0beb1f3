"""A detector in use: a bundle and a model together, which score answers.

detector = anchorscope.Detector.load("runs/demo")
detector.score("Which city is the capital of Peru?", "Lima").truth_probability

Items are made as in a run: the same prompts, greedy answers and passes. Only what the detector reads is run: one pass
up to the highest layer that is read, or all layers for confidence.

`live_cuts` shows what one answer's score depends on: the detector's probability with words of the question cut. One
pass runs the answer clean, without all key words, without each of them alone, without words that a user chose, and
without as many tokens drawn at random, which is the control. What it says of a single answer is mostly noise
(docs/evidence-parts.md), and the record says so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from anchorscope.answers.generate import TOO_LONG
from anchorscope.answers.label import Label
from anchorscope.answers.template import build_prompts, make_template
from anchorscope.datasets.question import Question, asked
from anchorscope.datasets.text import Span
from anchorscope.detectors.bundle import (
    Card,
    DetectorSetting,
    TrainedDetector,
    VerdictLimits,
    read_bundle,
)
from anchorscope.detectors.features import (
    ANSWER_TOKENS,
    CLEAN,
    COLUMNS,
    QUESTION_ONLY,
    RAUQ,
    Features,
    Needs,
    StateKey,
    refuse_unknown,
    text_columns,
)
from anchorscope.detectors.fitted import Fitted, WithFallback
from anchorscope.detectors.verdict import FALSE, OUT_OF_RANGE, TRUE, UNSURE, Verdict
from anchorscope.engine.capture import PREVIOUS
from anchorscope.engine.decode import Sampling
from anchorscope.engine.sequences import CLEAN as CLEAN_VARIANT
from anchorscope.engine.sequences import SITES, Cut, Variant
from anchorscope.errors import UserError
from anchorscope.evidence.further_runs import rauq
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_answers, run_states
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.items import Item
from anchorscope.models.language_model import (
    LanguageModel,
    model_fingerprint,
    tokenizer_fingerprint,
)
from anchorscope.models.loading import choose_device
from anchorscope.models.loading import load as load_model
from anchorscope.models.wrapping import wrap
from anchorscope.plan.passes import (
    Place,
    before_answers,
    plan_answers,
    planner_for,
    shared_tokens,
)
from anchorscope.progress import Progress, Silent
from anchorscope.spans.locate import locate_fitting, question_tokens
from anchorscope.spans.words import is_clear, words_as_written
from anchorscope.stats.streams import stream

_MOST_BYTES = 2**28  # of states in memory at a time
_FEWEST, _MOST = 64, 4096  # items that are run together
_UNLABELLED = Label(truthful=None, group=0, status="scored", weight=0.0)


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
        self.planner = replace(
            self.planner, batch_tokens=min(tokens, self.planner.batch_tokens)
        )

    def items(
        self,
        questions: Sequence[Question],
        longest: int | None = None,
        sampling: Sampling | None = None,
    ) -> list[Item]:
        """Questions with their answers and tokens; an empty answer has none, and neither has a question that does not
        fit the model's context. Where no answer is given the model writes one, of at most `longest` tokens."""
        lm, setting, tokens = self.lm, self.setting, self.planner.batch_tokens
        most = setting.max_new_tokens if longest is None else longest
        work = plan_answers(
            questions,
            lm.tokenizer,
            setting.template,
            most,
            tokens,
            self.planner.context,
        )
        answers = run_answers(
            self.executor, replace(work, sampling=sampling), self.progress
        )
        # An answer that was cut off has a state to read as any other; the caller reports that.
        readable = [
            replace(answer, status="answered")
            if answer.status == "truncated" and answer.text
            else answer
            for answer in answers
        ]
        located = locate_fitting(
            lm.tokenizer,
            setting.template,
            questions,
            setting.exact_tokens,
            readable,
            work.prompts,
        )
        rows = zip(questions, answers, located, strict=True)
        return [
            Item(question, answer, _UNLABELLED, own_tokens)
            for question, answer, own_tokens in rows
        ]

    def at_once(self, needs: Needs) -> int:
        """How many items are best run together: as many as the memory for their states holds."""
        layers = max((layer for _, _, layer in needs.states), default=0) + 1
        places = len({(run, site) for run, site, _ in needs.states}) or 1
        size = places * layers * self.lm.d_model * self.lm.dtype.itemsize
        return int(min(_MOST, max(_FEWEST, _MOST_BYTES // size)))

    def features(self, items: Sequence[Item], needs: Needs) -> Features:
        """What is asked for, of items that have an answer."""
        return self.features_of_runs("scoring", items, {CLEAN: CLEAN_VARIANT}, needs)[
            CLEAN
        ]

    def features_of_runs(
        self,
        name: str,
        items: Sequence[Item],
        variants: Mapping[str, Variant],
        needs: Needs,
    ) -> dict[str, Features]:
        """The same in several runs of the items' texts, in one pass no further than the highest layer that is read."""
        plain = text_columns(
            [item.question.question for item in items],
            [item.answer.text for item in items],
        )
        plain[ANSWER_TOKENS] = np.array([float(len(item.answer.ids)) for item in items])
        if not needs.reads_model:
            return dict.fromkeys(variants, Features(len(items), {}, plain).only(needs))
        sequences = [item.sequence((self.setting.position,)) for item in items]
        if QUESTION_ONLY in needs.runs:  # read before the answer begins, too
            sequences = [
                replace(
                    sequence, read_at=(*sequence.read_at, sequence.answer_start - 1)
                )
                for sequence in sequences
            ]
        places = tuple(dict.fromkeys(map(_place, needs.states)))
        stats = any(column in (*COLUMNS, RAUQ) for column in needs.columns)
        shared = shared_tokens(sequences)[
            : min(item.located.prefix_length for item in items)
        ]
        work = self.planner.states(
            name, sequences, before_answers(shared, sequences), list(variants.values())
        )
        top = None if stats else max(layer for _, _, layer in needs.states) + 1
        work = replace(
            work, keep=(places,) * len(variants), answer_stats=stats, n_layers=top
        )
        if RAUQ in needs.columns:
            work = replace(work, attention=PREVIOUS)
        passed = run_states(self.executor, work, self.progress)
        features = {}
        for run, part in zip(variants, passed.variants, strict=True):
            columns = dict(plain)
            if part.answers is not None:
                answers = part.answers.by_item()
                columns |= {
                    column: np.array([read(tokens) for tokens in answers])
                    for column, read in COLUMNS.items()
                }
                if RAUQ in needs.columns:
                    columns[RAUQ] = np.array(
                        [
                            rauq(tokens[0], passed.attention[item].previous)
                            for item, tokens in enumerate(answers)
                        ]
                    )
            states = {}
            for key in needs.states:
                assert part.states is not None, "a pass that is read keeps its states"
                states[key] = part.states[places.index(_place(key)), key[2]]
                if not bool(states[key].isfinite().all()):
                    raise UserError(
                        f"The {key[0]} states at {key[1]} of layer {key[2]} hold NaN or infinity; run the model in "
                        f"float32 (--dtype float32)."
                    )
            features[run] = Features(len(items), states, columns).only(needs)
        return features


@dataclass(frozen=True)
class Score:
    """What a detector says of one answer."""

    question: str
    answer: str
    truth_probability: float | None
    """Probability that the answer is true; None for an empty answer."""
    log_odds: float | None
    verdict: Verdict
    warnings: tuple[str, ...] = field(default=())
    """What may make the number worth less."""

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True)
class Decisions:
    """The same of several items, as arrays; `outside` the training range or not."""

    log_odds: Float[np.ndarray, " item"]
    probability: Float[np.ndarray, " item"]
    outside: Bool[np.ndarray, " item"]

    @classmethod
    def of(cls, trained: TrainedDetector, features: Features) -> "Decisions":
        """Calibrated log-odds and probabilities of items, and which of them lie outside the training range."""
        raw, calibration = trained.fitted.log_odds(features), trained.calibration
        if not np.isfinite(raw).all():
            raise UserError(
                f"Detector {trained.name!r} gives no number for an answer: its weights are too large; train it again."
            )
        outside = (
            np.zeros(len(raw), bool)
            if trained.range is None
            else trained.range.is_outside(features)
        )
        return cls(
            calibration.slope * raw + calibration.intercept,
            calibration.probability(raw),
            outside,
        )

    def verdicts(self, limits: VerdictLimits) -> list[str]:
        """One of the four verdicts for each item; the first that applies."""
        is_true = self.probability >= limits.true_from
        is_false = self.probability <= limits.false_to
        conditions = [self.outside, is_true, is_false]
        words = [OUT_OF_RANGE, TRUE, FALSE]
        return np.select(conditions, words, default=UNSURE).tolist()


def refuse_other_model(trained: TrainedDetector, lm: LanguageModel) -> tuple[str, ...]:
    """Refuses another shape, tokenizer, template or other weights; another precision is a warning."""
    setting, dtype = trained.setting, str(lm.dtype).removeprefix("torch.")
    shape, own = (lm.n_layers, lm.d_model), (setting.n_layers, setting.d_model)
    wanted = getattr(torch, setting.dtype, None)
    precision = (
        wanted if isinstance(wanted, torch.dtype) and wanted != lm.dtype else None
    )
    if shape != own:
        difference = f"it has {shape[0]} layers of width {shape[1]} instead of {own[0]} of {own[1]}"
    elif tokenizer_fingerprint(lm.tokenizer) != setting.tokenizer:
        difference = "its tokenizer is another one"
    elif (
        make_template(setting.template.kind, lm.tokenizer, lm.needs_bos)
        != setting.template
    ):
        difference = f"its {setting.template.kind} prompt is another one (its text or its examples have changed)"
    elif model_fingerprint(lm.model, precision) != setting.fingerprint:
        rounded = f" (or were rounded: it runs in {dtype}, training in {setting.dtype})"
        difference = "its weights are others" + rounded * (dtype != setting.dtype)
    else:
        return (
            ()
            if dtype == setting.dtype
            else (f"dtype differs: trained in {setting.dtype}, scored in {dtype}",)
        )
    raise UserError(
        f"Detector {trained.name!r} was trained on model {setting.model!r} and does not fit {lm.name!r}: "
        f"{difference}; score with that model ({setting.source}) and anchorscope "
        f"{trained.card.versions.get('anchorscope', '')}, or train a detector on this one (anchorscope detect)."
    )


class Detector:
    def __init__(
        self,
        trained: TrainedDetector,
        lm: LanguageModel,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> None:
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
        return cls(
            trained,
            model_for(trained, model, tokenizer, device, dtype, progress),
            batch_tokens,
            progress,
        )

    @property
    def card(self) -> Card:
        return self.trained.card

    def score(
        self, question: str, answer: str | None = None, *, risk: float | None = None
    ) -> Score:
        """One answer; without one, the model answers itself, greedily."""
        return self.score_many([(question, answer)], risk=risk)[0]

    def score_many(
        self,
        pairs: Iterable[tuple[str, str | None] | str],
        *,
        risk: float | None = None,
    ) -> list[Score]:
        """Answers to many questions, in order: pairs of question and answer, or questions alone."""
        given = ((pair, None) if isinstance(pair, str) else pair for pair in pairs)
        return self.score_questions(
            [asked(*pair, index) for index, pair in enumerate(given)], risk=risk
        )

    def score_questions(
        self, questions: Sequence[Question], *, risk: float | None = None
    ) -> list[Score]:
        """The same for questions of a dataset, whose subjects and own answers are used where they are known."""
        self.trained.threshold(risk)  # refused before anything is run
        scores: list[Score] = []
        at_once = self.session.at_once(self.trained.needs)
        for first in range(0, len(questions), at_once):
            items = self.session.items(questions[first : first + at_once])
            scores += self.score_items(items, risk=risk)
        return scores

    def score_items(
        self, items: Sequence[Item], *, risk: float | None = None
    ) -> list[Score]:
        """Scores of items that the session has made: read, decided, judged. The answers are taken as they are."""
        read = [item for item in items if item.tokens is not None]
        notes, context = (
            (*self._notes, *self.trained.threshold_notes(risk)),
            self.session.lm.context,
        )
        judged: Iterator[tuple[float, float, str]] = iter(())
        if read:
            decided = Decisions.of(
                self.trained, self.session.features(read, self.trained.needs)
            )
            verdicts = decided.verdicts(self.trained.verdict_limits(risk))
            judged = zip(
                decided.probability.tolist(),
                decided.log_odds.tolist(),
                verdicts,
                strict=True,
            )
        scores = []
        for item in items:
            row: tuple[float | None, float | None, str, tuple[str, ...]]
            # an answer without a word, or a question that the model can't read
            if item.tokens is None:
                row = None, None, UNSURE, (*notes, unread_reason(item, context))
            else:
                row = *next(judged), (*notes, *self._warnings(item))
            scores.append(Score(item.question.question, item.answer.text, *row))
        return scores

    def _warnings(self, item: Item) -> list[str]:
        """What may make an item's number worth less."""
        warnings, span = [], self.trained.range
        if item.answer.status == "truncated":
            warnings.append(
                f"the answer is truncated after {len(item.answer.ids)} tokens"
            )
        longest, length = (
            None if span is None else span.longest,
            len(item.located.input_ids),
        )
        if longest is not None and length > longest:
            warnings.append(
                f"context: {length} tokens with the prompt, {longest} at most in training"
            )
        if item.question.context and self.trained.context_use is None:
            warnings.append(
                "the detector was not trained on answers that follow a passage: to it a passage is no reason"
            )
        return warnings

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
            raise UserError(
                "A model that is already loaded needs its tokenizer; pass tokenizer=... beside it."
            )
        return wrap(model, tokenizer)
    source = model or trained.setting.source
    precision = trained.setting.dtype if dtype == "auto" else dtype
    return load_model(source, precision, choose_device(device), progress=progress)


MOST_ALONE = 16
"""Key words that are cut one by one; of more, the first ones."""
DRAWS = 3


def live_cuts(
    detector: Detector,
    question: Question,
    chosen: Sequence[int] | None = None,
    longest: int | None = None,
) -> tuple[Score, dict[str, Any]]:
    """The detector's score of one answer, and a record of what it becomes under cuts.

    Where there is no answer, the model gives one of at most `longest` tokens, and never more than the detector's own.
    `chosen` are the numbers of words of the question, counted from 0, that are cut together in a run of their own.
    """
    trained, session = detector.trained, detector.session
    setting, needs = trained.setting, trained.needs
    most = setting.max_new_tokens
    (item,) = session.items([question], most if longest is None else min(longest, most))
    if item.tokens is None:
        raise UserError(
            f"Nothing can be read of this answer: {unread_reason(item, session.lm.context)}."
        )
    words = question_words(question, item.words.spans)
    cut_together = sorted(set(chosen or ()))
    if cut_together and not 0 <= cut_together[0] <= cut_together[-1] < len(words):
        wrong = min(cut_together[0], 0) or cut_together[-1]
        raise UserError(
            f"Word {wrong} is to be cut, and the question has {len(words)} words; give numbers from 0 to "
            f"{len(words) - 1}."
        )
    (prompt,) = build_prompts(session.lm.tokenizer, [question], setting.template)

    def tokens_of(numbers: Sequence[int]) -> tuple[int, ...]:
        """Tokens of some words; never the first of all, which models use as a sink for idle attention."""
        spans = [(words[number]["start"], words[number]["end"]) for number in numbers]
        return tuple(token for token in question_tokens(spans, prompt) if token > 0)

    keys, random = item.located.question_tokens, _random_cuts(item, setting.edges)
    alone = [number for number, word in enumerate(words) if word["key"]][:MOST_ALONE]
    cuts = {"all": keys, "chosen": tokens_of(cut_together), **random}
    cuts |= {f"word {number}": tokens_of([number]) for number in alone}
    warnings = []
    if not keys:
        warnings.append("no key words found: nothing could be cut")
    n_random = len(next(iter(random.values()), ()))
    if n_random < len(keys):
        warnings.append(
            f"the random cut takes {n_random} tokens, the key words are {len(keys)}: there are no more others"
        )
    decisions: dict[str, Decisions] = {}
    if (
        QUESTION_ONLY in _needs_of_probes(trained.fitted).runs
        or RAUQ in needs.columns
        or not needs.reads_model
    ):
        warnings.append(
            f"cuts are not measured for {trained.name!r}: they change more than it reads of one run"
        )
    else:
        runs = {CLEAN: CLEAN_VARIANT}
        runs |= {
            name: Variant({0: Cut(tokens, setting.edges)})
            for name, tokens in cuts.items()
            if tokens
        }
        read = session.features_of_runs("live cuts", [item], runs, needs)
        before = {
            key: states
            for key, states in read[CLEAN].states.items()
            if key[0] == QUESTION_ONLY
        }
        uncut = {
            run: replace(features, states={**features.states, **before})
            for run, features in read.items()
        }
        decisions = {
            run: Decisions.of(trained, features) for run, features in uncut.items()
        }
        if not all(
            np.isfinite(decided.probability).all() for decided in decisions.values()
        ):
            raise UserError(
                "The model's states hold NaN or infinity; run the model in float32 (--dtype float32)."
            )
    if "all" in decisions and decisions["all"].outside[0]:
        warnings.append("without the key words the state is unlike those of training")
    (score,) = detector.score_items([item])
    assert score.truth_probability is not None, (
        "an answer that was read has a probability"
    )
    shown = {CLEAN: round(score.truth_probability, 6)}
    shown |= {
        run: round(float(decided.probability[0]), 6)
        for run, decided in decisions.items()
    }
    record = score.record()
    return score, {
        "question": record.pop("question"),
        "answer": record.pop("answer"),
        "score": record,
        "words": words,
        "probability": {
            **{run: shown.get(run) for run in (CLEAN, "all", "chosen")},
            "alone": [
                {"word": n, "value": shown[f"word {n}"]}
                for n in alone
                if f"word {n}" in shown
            ],
            "random": [shown[run] for run in random if run in shown],
        },
        "note": "What a cut does to many answers can be measured; what it does to a single one is mostly noise.",
        "generated": question.model_answer is None,
        "key_words_by": item.located.rule,
        "chosen": None if chosen is None else cut_together,
        "position": setting.position,
        "edges": setting.edges,
        "warnings": warnings,
    }


def _needs_of_probes(fitted: Fitted) -> Needs:
    """What a detector reads of the answer; its range reads the question, which stays whole under the cuts."""
    parts = (
        (fitted.detector, fitted.fallback)
        if isinstance(fitted, WithFallback)
        else (fitted,)
    )
    return Needs.together(part.needs for part in parts)


def question_words(
    question: Question, key_spans: Sequence[Span]
) -> list[dict[str, Any]]:
    """What can be cut of a question, in its order: the key words, some of them several words long, and all others."""
    text = question.question
    others = [
        (word.start, word.end)
        for word in words_as_written(text)
        if is_clear(word.start, word.end, key_spans)
    ]
    return [
        {
            "start": start,
            "end": end,
            "text": text[start:end],
            "key": (start, end) in key_spans,
        }
        for start, end in sorted([*key_spans, *others])
    ]


def _random_cuts(item: Item, edges: str) -> dict[str, tuple[int, ...]]:
    """The tokens of each random draw, as a run draws them; draws that are the same count once."""
    draws: dict[str, tuple[int, ...]] = {}
    for draw in range(DRAWS if item.located.question_tokens else 0):
        random = replace(INTERVENTIONS["random"], draw=draw)
        keys = random.cut(
            item, edges, stream(0, random.draw_name, item.question.question)
        ).keys
        if keys not in draws.values():
            draws[random.draw_name] = keys
    return draws
