"""A model made ready to score answers: questions in, what a detector reads of them out.

The way is that of a run: the same prompts, the same greedy answers, the same key words, the same passes. Only what is
needed is run: variants of the same items together in one pass, and no further than to the highest layer that is read,
unless the model's confidence is asked for, which takes all of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.answers.template import Prompt
from anchorscope.datasets.question import Question
from anchorscope.detectors.features import CLEAN, Features, Needs, StateKey
from anchorscope.detectors.runs import ANSWER_ONLY, ANSWER_TOKENS, COLUMNS, QUESTION_ONLY, refuse_unknown, variant_of
from anchorscope.detectors.trained import DetectorSetting
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.parts import VariantPart
from anchorscope.execute.run_passes import key_word_writer, run_answers, run_states
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.interventions.intervention import Setting, Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import plan_rewrite
from anchorscope.plan.passes import Place, before_answers, plan_answers, planner_for, shared_tokens
from anchorscope.progress import Progress, Silent
from anchorscope.spans.locate import locate_fitting
from anchorscope.spans.question_spans import Asker, QuestionSpans, question_words

_MOST_BYTES = 2**28  # of states in memory at a time
_FEWEST, _MOST = 64, 4096  # items that are run together
_UNLABELLED = Label(truthful=None, group=0, status="scored", weight=0.0)

States = dict[StateKey, Float[Tensor, "item d_model"]]


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

    def items(self, questions: Sequence[Question]) -> list[Item]:
        """Questions with their answers, greedy where none is given, and their tokens; an empty answer has
        none, and neither has a question that does not fit the model's context."""
        setting, tokens = self.setting, self.planner.batch_tokens
        work = plan_answers(
            questions, self.lm.tokenizer, setting.template, setting.max_new_tokens, tokens, self.planner.context
        )
        return self.located(questions, run_answers(self.executor, work, self.progress), work.prompts)

    def located(
        self, questions: Sequence[Question], answers: Sequence[Answer], prompts: Sequence[Prompt] | None = None
    ) -> list[Item]:
        """The same where the answers are there already, and perhaps the prompts."""
        setting = self.setting

        def words(some: Sequence[Question]) -> list[QuestionSpans]:
            return question_words(setting.exact_tokens, some, self._asker)

        # An answer that was cut off has a state to read as any other; whoever scores it says so.
        readable = [
            replace(one, status="answered") if one.status == "truncated" and one.text else one for one in answers
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
        states: States = {}
        columns: dict[str, Float[np.ndarray, " item"]] = {}
        if items:
            states, columns = self._own_text(items, needs)
            states |= self._answer_alone(items, [key for key in needs.states if key[0] == ANSWER_ONLY])
        columns[ANSWER_TOKENS] = np.array([len(item.answer.ids) for item in items], dtype=np.float64)
        return Features(len(items), states, {name: columns[name] for name in needs.columns})

    def _own_text(self, items: Sequence[Item], needs: Needs) -> tuple[States, dict[str, Float[np.ndarray, " item"]]]:
        """Everything that is read of the items' own texts: all runs in one pass."""
        keys = [key for key in needs.states if key[0] != ANSWER_ONLY]
        told = [name for name in needs.columns if name in COLUMNS]
        named = [*(run for run, _, _ in keys), *(COLUMNS[name].run for name in told)]
        runs = list(dict.fromkeys(CLEAN if run == QUESTION_ONLY else run for run in named))
        if not runs:
            return {}, {}
        sequences = [self._sequence(item, QUESTION_ONLY in named) for item in items]
        variants = [variant_of(run, items, self.setting.edges) for run in runs]
        keep = [_places(keys, run) for run in runs]
        prefix = before_answers(shared_tokens(_prefix(items), sequences), sequences)
        work = self.planner.states("scoring", sequences, prefix, variants)
        work = replace(work, keep=tuple(keep), answer_stats=bool(told), n_layers=None if told else _top(keys))
        found = dict(zip(runs, run_states(self.executor, work, self.progress).variants, strict=True))
        states: States = {}
        for run, site, layer in keys:
            own = CLEAN if run == QUESTION_ONLY else run
            place = (int(run == QUESTION_ONLY), SITES.index(site))
            states[run, site, layer] = _kept(found[own])[keep[runs.index(own)].index(place), layer]
        return states, {name: _column(found[COLUMNS[name].run], name) for name in told}

    def _sequence(self, item: Item, question_too: bool) -> TokenSequence:
        """The item as it is run: read at the detector's position, and where asked for before the answer begins."""
        sequence = item.sequence((self.setting.position,))
        return replace(sequence, read_at=(*sequence.read_at, sequence.answer_start - 1)) if question_too else sequence

    def _answer_alone(self, items: Sequence[Item], keys: Sequence[StateKey]) -> States:
        """States of the answers without their questions."""
        if not keys:
            return {}
        setting = Setting((self.setting.position,), self.setting.edges, 0, lambda: self.writer)
        planned = plan_rewrite(INTERVENTIONS["answer-template"], items, setting)
        sequences = [run.sequence for run in planned.runs]
        keep = _places(keys, ANSWER_ONLY)
        work = self.planner.states("answers alone", sequences, shared_tokens(_prefix(items), sequences))
        part = run_states(self.executor, replace(work, keep=(keep,), n_layers=_top(keys)), self.progress).variants[0]
        return {key: _kept(part)[keep.index((0, SITES.index(key[1]))), key[2]] for key in keys}


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


def _kept(part: VariantPart) -> Float[Tensor, "place layer item d_model"]:
    assert part.states is not None, "a pass that is told to keep states keeps them"
    return part.states


def _column(part: VariantPart, name: str) -> Float[np.ndarray, " item"]:
    assert part.answers is not None, "a pass that is told to score answers scores them"
    return np.array([COLUMNS[name].made(found) for found in part.answers.by_item()], dtype=np.float64)
