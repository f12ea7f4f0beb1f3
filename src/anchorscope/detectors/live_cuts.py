"""What the score of one answer rests on: the question's key words cut together and one by one, by layer.

One pass runs the answer clean, without all key words, without each of them alone, without words that a user chose, and
without as many tokens drawn at random, which is the control. At every layer the bundle's probe reads the states: ΔP is
the change of its probability of "truthful", in percentage points, as in a run's report.
What cutting does to many answers can be measured; what it says of a single one is mostly noise
(docs/evidence-parts.md), and the record says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from anchorscope.answers.generate import TOO_LONG
from anchorscope.answers.template import Prompt, build_prompts
from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import Span
from anchorscope.detectors.detector import Detector, TextPass, asked
from anchorscope.detectors.features import CLEAN, COLUMNS, QUESTION_ONLY, Needs
from anchorscope.detectors.fitted import LayerProbes, probability_of
from anchorscope.detectors.trained import DetectorSetting, Score, decide
from anchorscope.engine.sequences import CLEAN as CLEAN_VARIANT
from anchorscope.engine.sequences import Cut, Variant
from anchorscope.errors import UserError
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.items import Item
from anchorscope.spans.locate import question_tokens
from anchorscope.spans.words import is_clear, words_as_written
from anchorscope.stats.streams import stream

NOTE = "What a cut does to many answers can be measured; what it does to a single one is mostly noise."
"""What the record says of itself."""

Layers = Float[np.ndarray, " layer"]


@dataclass(frozen=True)
class QuestionWord:
    """Something that can be cut."""

    start: int
    """Characters [start, end) of the question's text."""
    end: int
    text: str
    key: bool
    """Whether it is one of the key words, which may be several words long."""


@dataclass(frozen=True)
class CutScore:
    """What the detector says of the states without the key words."""

    truth_probability: float
    log_odds: float
    out_of_range: bool
    """Whether these states are unlike those of training."""


@dataclass(frozen=True)
class LiveCuts:
    """One question and answer, clean and cut."""

    score: Score
    """The detector's own."""
    score_cut: CutScore | None
    """None where there are no key words, and where the detector also reads the state before the answer."""
    generated: bool
    """Whether the model gave the answer."""
    words: tuple[QuestionWord, ...]
    """All that can be cut, in the order of the question."""
    rule: str
    """How the key words were found."""
    chosen: tuple[int, ...] | None
    """Numbers of the words that were cut together because the user asked for it."""
    setting: DetectorSetting
    probes: LayerProbes | None
    """None in a bundle that has no probes of every layer."""
    probability: Mapping[str, Layers]
    """Of "truthful", at every layer that has a probe, by run: `clean`, `knockout` (all key words), `word N`, `chosen`,
    `random`, `random 2` …"""
    n_cut: Mapping[str, int]
    """Tokens that each run was to lose; 0 where there was nothing to cut."""

    def delta_p(self, run: str) -> Layers | None:
        """Change of that probability, in percentage points; None where nothing was run."""
        return 100 * (self.probability[run] - self.probability[CLEAN]) if run in self.probability else None

    def record(self) -> dict[str, Any]:
        """Ready for JSON; what has a number per layer is null without probes."""
        score, probes = self.score.record(), self.probes
        return {
            "question": score.pop("question"),
            "answer": score.pop("answer"),
            "generated": self.generated,
            "score": score,
            "score_cut": None if self.score_cut is None else asdict(self.score_cut),
            "words": [asdict(word) for word in self.words],
            "key_words_by": self.rule,
            "chosen": None if self.chosen is None else list(self.chosen),
            "position": self.setting.position,
            "edges": self.setting.edges,
            "n_layers": self.setting.n_layers,
            "warnings": self.warnings(),
            "note": NOTE,
            "site": None if probes is None else probes.site,
            "layers": [] if probes is None else list(probes.layers),
            "reference_layer": None if probes is None else probes.reference_layer,
            "probability": None if probes is None else self._probabilities(),
            "delta_p": None if probes is None else self._changes(),
            "training": None if probes is None else _training(probes),
        }

    def _probabilities(self) -> dict[str, Any]:
        random = [_rounded(self.probability[run]) for run in self._runs("random")]
        cuts = self._cuts(self.probability)
        return {"clean": _rounded(self.probability[CLEAN]), **cuts, "random": random}

    def _changes(self) -> dict[str, Any]:
        random = [self.delta_p(run) for run in self._runs("random")]
        return {
            **self._cuts({run: self.delta_p(run) for run in self.probability}),
            "random": _rounded(np.mean(random, axis=0)) if random else None,  # type: ignore[arg-type]
        }

    def _cuts(self, by_run: Mapping[str, Layers | None]) -> dict[str, Any]:
        """Numbers under all key words, the chosen ones, and each key word alone."""
        alone = [{"word": int(run.removeprefix(ALONE)), "values": _rounded(by_run[run])} for run in self._runs(ALONE)]
        return {"all": _rounded(by_run.get(KNOCKOUT)), "chosen": _rounded(by_run.get(CHOSEN)), "alone": alone}

    def _runs(self, start: str) -> list[str]:
        return [run for run in self.probability if run.startswith(start)]

    def warnings(self) -> list[str]:
        """What may make the numbers worth less; those of the score are its own."""
        warnings = []
        if not self.n_cut.get(KNOCKOUT):
            warnings.append("no key words found: nothing could be cut")
        if self.probes is None:
            warnings.append("this bundle has no probes of every layer: train it again with anchorscope detect")
        random, wanted = self.n_cut.get("random", 0), self.n_cut.get(KNOCKOUT, 0)
        if random < wanted:
            warnings.append(
                f"the random cut takes {random} tokens, the key words are {wanted}: there are no more others"
            )
        return warnings


def _training(probes: LayerProbes) -> dict[str, Any]:
    """The same of the answers of training, where numbers are means over many."""
    false, true = probes.delta_p or (None, None)
    return {
        "n": probes.n_items,
        "n_true": probes.n_true,
        "auc": _rounded(probes.auc),
        "delta_p_false": _rounded(false),
        "delta_p_true": _rounded(true),
    }


def _rounded(values: Layers | Sequence[float] | None) -> list[float | None] | None:
    return None if values is None else [round(float(value), 6) if np.isfinite(value) else None for value in values]


MOST_ALONE = 16
"""Key words that are cut one by one; of more, the first ones."""
DRAWS = 3
"""Random cuts."""
CHOSEN, ALONE = "chosen", "word "
"""Names of runs: words that the user chose; a key word alone, with its number."""


def live_cuts(
    detector: Detector,
    question: str | Question,
    answer: str | None,
    chosen: Sequence[int] | None = None,
    longest: int | None = None,
) -> LiveCuts:
    """Cuts of one question and answer; where there is none, the model gives one of at most `longest` tokens, and never
    more than the detector's own. `chosen` are the numbers of words of the question, counted from 0, that are cut
    together in a run of their own. A `Question` has its own answer."""
    given = asked(question, answer) if isinstance(question, str) else question
    answer = given.model_answer
    (item,) = detector.session.items([given], longest)
    if item.tokens is None:
        raise _unread(item, detector)
    setting, lm = detector.trained.setting, detector.session.lm
    (prompt,) = build_prompts(lm.tokenizer, [given], setting.template)
    words = question_units(given, item.words.spans)
    alone = [place for place, word in enumerate(words) if word.key][:MOST_ALONE]
    cuts = {
        KNOCKOUT: item.located.question_tokens,
        **{f"{ALONE}{place}": _tokens(given, [words[place]], prompt) for place in alone},
        CHOSEN: _tokens(given, _named(words, chosen or ()), prompt),
        **_random_keys(item, setting.edges),
    }
    runs = {CLEAN: CLEAN_VARIANT} | {
        name: Variant({0: Cut(keys, setting.edges)}) for name, keys in cuts.items() if keys
    }
    needs, probes = detector.trained.needs, detector.trained.layer_probes
    sites = {site for run, site, _ in needs.states if run == CLEAN} | (set() if probes is None else {probes.site})
    read = Needs(tuple((run, site, 0) for run in runs for site in sorted(sites)), needs.columns)
    passed = detector.session.run_texts("live cuts", [item], runs, read, all_layers=True)
    probability = {}
    if probes is not None:
        layers = list(probes.layers)
        probability = {
            run: probability_of(probes.log_odds(passed.states(run, probes.site)[layers])[:, 0]) for run in runs
        }
        if not all(np.isfinite(values).all() for values in probability.values()):
            raise UserError("The model's states hold NaN or infinity; run the model in float32 (--dtype float32).")
    return LiveCuts(
        score=detector.score_items([item])[0],
        score_cut=_score_cut(detector, item, passed),
        generated=answer is None,
        words=words,
        rule=item.located.rule,
        chosen=None if chosen is None else tuple(sorted(set(chosen))),
        setting=setting,
        probes=probes,
        probability=probability,
        n_cut={name: len(keys) for name, keys in cuts.items()},
    )


def question_units(question: Question, key_spans: Sequence[Span]) -> tuple[QuestionWord, ...]:
    """What can be cut of a question: its key words, some of them several words long, and every other word."""
    text = question.question
    others = [(word.start, word.end) for word in words_as_written(text) if is_clear(word.start, word.end, key_spans)]
    keys = set(key_spans)
    return tuple(
        QuestionWord(start, end, text[start:end], (start, end) in keys) for start, end in sorted([*key_spans, *others])
    )


def _named(words: Sequence[QuestionWord], chosen: Sequence[int]) -> list[QuestionWord]:
    for number in chosen:
        if not 0 <= number < len(words):
            raise UserError(
                f"Word {number} is to be cut, and the question has {len(words)} words; give numbers from 0 to "
                f"{len(words) - 1}."
            )
    return [words[number] for number in sorted(set(chosen))]


def _tokens(question: Question, words: Iterable[QuestionWord], prompt: Prompt) -> tuple[int, ...]:
    """Tokens of some words; never the first of all, which models use as a sink for idle attention."""
    found = question_tokens([(word.start, word.end) for word in words], prompt)
    return tuple(token for token in found if token > 0)


def _random_keys(item: Item, edges: str) -> dict[str, tuple[int, ...]]:
    """The tokens of each random draw, as a run draws them; draws that are the same count once."""
    if not item.located.question_tokens:
        return {}
    draws: dict[str, tuple[int, ...]] = {}
    for draw in range(DRAWS):
        random = replace(INTERVENTIONS["random"], draw=draw)
        keys = random.cut(item, edges, stream(0, random.draw_name, item.question.question)).keys
        if keys not in draws.values():
            draws[random.draw_name] = keys
    return draws


def _score_cut(detector: Detector, item: Item, passed: TextPass) -> CutScore | None:
    """What the detector would say of the states without the key words; None where there are none, and where it reads
    more than one place of the clean run."""
    needs = detector.trained.needs
    reads_nothing = not needs.states and not set(needs.columns) & set(COLUMNS)
    if KNOCKOUT not in passed.parts or reads_nothing or QUESTION_ONLY in needs.runs:
        return None
    decided = decide(detector.trained, passed.features([item], needs, {CLEAN: KNOCKOUT}))
    return CutScore(float(decided.probability[0]), float(decided.log_odds[0]), bool(decided.outside[0]))


def _unread(item: Item, detector: Detector) -> UserError:
    if item.answer.status == TOO_LONG:
        return UserError(
            f"Question and answer may take {item.answer.needs:,} tokens, and the model reads at most "
            f"{detector.session.lm.context:,}; shorten them."
        )
    return UserError("The answer is empty, and nothing can be read of it; give an answer, or another question.")
