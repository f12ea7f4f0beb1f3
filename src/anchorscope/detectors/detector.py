"""A detector in use: a bundle and a model together, which score answers.

detector = anchorscope.Detector.load("runs/demo/detectors/auto")
detector.score("What is the capital of Peru?", "Lima").truth_probability
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from anchorscope.answers.generate import TOO_LONG
from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import Question
from anchorscope.datasets.question import asked as asked
from anchorscope.detectors.bundle import read_bundle
from anchorscope.detectors.features import Features
from anchorscope.detectors.model_check import refuse_other_model
from anchorscope.detectors.runs import COLUMNS, refuse_unknown
from anchorscope.detectors.scoring import ABSTAIN, Score, decide, threshold_notes
from anchorscope.detectors.session import ScoringSession
from anchorscope.detectors.trained import Card, TrainedDetector
from anchorscope.errors import UserError
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import choose_device
from anchorscope.models.loading import load as load_model
from anchorscope.models.wrapping import wrap
from anchorscope.progress import Progress


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
        path: str | Path,
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
        return cls.of(read_bundle(path), model, tokenizer, device, dtype, batch_tokens=batch_tokens, progress=progress)

    @classmethod
    def of(
        cls,
        trained: TrainedDetector,
        model: Any = None,
        tokenizer: Any = None,
        device: str = "auto",
        dtype: str = "auto",
        *,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> "Detector":
        """The same for a detector that is in memory."""
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
        given = [(one, None) if isinstance(one, str) else one for one in pairs]
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
