"""What the score of one answer rests on: the question's key words cut together and one by one, by layer.

One pass runs the answer clean, without all key words, without each of them alone, without words that a user chose, and
without as many tokens drawn at random, which is the control. At every layer the bundle's probe reads the states: ΔP is
the change of its probability of "truthful", in percentage points, as in a run's report.
What cutting does to many answers can be measured; what it says of a single one is mostly noise
(docs/evidence-parts.md), and the record says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from anchorscope.answers.generate import TOO_LONG
from anchorscope.answers.template import Prompt, build_prompts
from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import Span
from anchorscope.detectors.detector import Detector, TextPass, asked
from anchorscope.detectors.features import CLEAN, COLUMNS, QUESTION_ONLY, Needs
from anchorscope.detectors.layer_probes import LayerProbes
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
    """None where there are no key words, and where the detector reads a cut itself."""
    generated: bool
    """Whether the model gave the answer."""
    words: tuple[QuestionWord, ...]
    """All that can be cut, in the order of the question."""
    rule: str
    """How the key words were found."""
    chosen: tuple[int, ...] | None
    """Numbers of the words that were cut together because somebody asked for it."""
    setting: DetectorSetting
    probes: LayerProbes | None
    """None in a bundle that has no probes of every layer."""
    log_odds: Mapping[str, Layers] = field(default_factory=dict)
    """By run: `clean`, `knockout` (all key words), `word N`, `chosen`, `random`, `random 2` …"""
    n_cut: Mapping[str, int] = field(default_factory=dict)
    """Tokens that each run was to lose; 0 where there was nothing to cut."""

    def probability(self, run: str) -> Layers | None:
        """Of "truthful", at every layer that has a probe; None where nothing was run."""
        return expit(self.log_odds[run]) if run in self.log_odds else None

    def delta_p(self, run: str) -> Layers | None:
        """Change of that probability, in percentage points."""
        before, after = self.probability(CLEAN), self.probability(run)
        return None if before is None or after is None else 100 * (after - before)

    @property
    def draws(self) -> list[str]:
        """The random cuts."""
        return [run for run in self.log_odds if run.startswith("random")]

    def random_delta_p(self) -> Layers | None:
        """Mean ΔP of the random cuts."""
        found = [self.delta_p(run) for run in self.draws]
        return np.mean(found, axis=0) if found else None  # type: ignore[arg-type]

    def record(self) -> dict[str, Any]:
        """Ready for JSON."""
        told = self.score.record()
        cut = self.score_cut
        return {
            "question": told.pop("question"),
            "answer": told.pop("answer"),
            "generated": self.generated,
            "score": told,
            "score_cut": None
            if cut is None
            else {
                "truth_probability": _rounded(cut.truth_probability),
                "log_odds": _rounded(cut.log_odds),
                "out_of_range": cut.out_of_range,
            },
            "words": [
                {"start": word.start, "end": word.end, "text": word.text, "key": word.key} for word in self.words
            ],
            "key_words_by": self.rule,
            "chosen": None if self.chosen is None else list(self.chosen),
            "position": self.setting.position,
            "edges": self.setting.edges,
            "n_layers": self.setting.n_layers,
            "warnings": self.warnings(),
            "note": NOTE,
            **self._by_layer(),
        }

    def warnings(self) -> list[str]:
        """What may make the numbers worth less; those of the score are its own."""
        found = []
        if not self.n_cut.get(KNOCKOUT):
            found.append("no key words found: nothing could be cut")
        if self.probes is None:
            found.append("this bundle has no probes of every layer: train it again with anchorscope detect")
        elif len(self.probes.layers) < self.setting.n_layers:
            found.append(f"{len(self.probes.layers)} of {self.setting.n_layers} layers have a probe in this bundle")
        drawn, wanted = self.n_cut.get("random", 0), self.n_cut.get(KNOCKOUT, 0)
        if drawn < wanted:
            found.append(f"the random cut takes {drawn} tokens, the key words are {wanted}: there are no more others")
        return found

    def _by_layer(self) -> dict[str, Any]:
        """Everything that has a number per layer; nothing without probes."""
        if self.probes is None:
            return {
                "site": None,
                "layers": [],
                "reference_layer": None,
                "probability": None,
                "delta_p": None,
                "training": None,
            }
        alone = [place for place in range(len(self.words)) if f"word {place}" in self.log_odds]
        return {
            "site": self.probes.site,
            "layers": list(self.probes.layers),
            "reference_layer": self.probes.layers[self.probes.reference],
            "probability": {
                "clean": _list(self.probability(CLEAN)),
                "all": _list(self.probability(KNOCKOUT)),
                "chosen": _list(self.probability("chosen")),
                "alone": [{"word": at, "values": _list(self.probability(f"word {at}"))} for at in alone],
                "random": [_list(self.probability(run)) for run in self.draws],
            },
            "delta_p": {
                "all": _list(self.delta_p(KNOCKOUT)),
                "chosen": _list(self.delta_p("chosen")),
                "alone": [{"word": at, "values": _list(self.delta_p(f"word {at}"))} for at in alone],
                "random": _list(self.random_delta_p()),
            },
            "training": _training(self.probes),
        }


def _training(probes: LayerProbes) -> dict[str, Any]:
    """The same of the answers of training, where numbers are means over many."""
    moved = probes.delta_p
    return {
        "n": probes.n_items,
        "n_true": probes.n_true,
        "auc": _list(probes.auc),
        "delta_p_false": None if moved is None else _list(moved[0]),
        "delta_p_true": None if moved is None else _list(moved[1]),
    }


def _list(values: Layers | None) -> list[float | None] | None:
    return None if values is None else [_rounded(float(value)) if np.isfinite(value) else None for value in values]


def _rounded(value: float) -> float:
    return round(value, 6)


MOST_ALONE = 16
"""Key words that are cut one by one; of more, the first ones."""
DRAWS = 3
"""Random cuts."""
CHOSEN, ALONE = "chosen", "word "
"""Names of runs: words that the user chose; a key word alone, with its number."""
_OWN_RUNS = {CLEAN, KNOCKOUT, QUESTION_ONLY}


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
    passed = _run_cuts(detector, item, runs)
    score, cut = _scores(detector, item, passed)
    probes = detector.trained.layer_probes
    log_odds: dict[str, Float[np.ndarray, " layer"]] = {}
    if probes is not None:
        layers = list(probes.layers)
        log_odds = {run: probes.log_odds(passed.states(run, probes.site)[layers])[:, 0] for run in runs}
        _refuse_no_numbers(log_odds)
    return LiveCuts(
        score=score,
        score_cut=cut,
        generated=answer is None,
        words=words,
        rule=item.located.rule,
        chosen=None if chosen is None else tuple(sorted(set(chosen))),
        setting=setting,
        probes=probes,
        log_odds=log_odds,
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
    found: dict[str, tuple[int, ...]] = {}
    for draw in range(DRAWS):
        one = replace(INTERVENTIONS["random"], draw=draw)
        keys = one.cut(item, edges, stream(0, one.draw_name, item.question.question)).keys
        if keys not in found.values():
            found[one.draw_name] = keys
    return found


def _run_cuts(detector: Detector, item: Item, runs: Mapping[str, Variant]) -> TextPass:
    """All runs together; each keeps what the detector reads of the clean run, and what the probes of layers read."""
    needs, probes = detector.trained.needs, detector.trained.layer_probes
    sites = {site for run, site, _ in needs.states if run in (CLEAN, KNOCKOUT)}
    sites |= set() if probes is None else {probes.site}
    before = [key for key in needs.states if key[0] == QUESTION_ONLY]
    every = Needs((*((run, site, 0) for run in runs for site in sorted(sites)), *before), needs.columns)
    return detector.session.run_texts("live cuts", [item], runs, every, all_layers=True)


def _scores(detector: Detector, item: Item, passed: TextPass) -> tuple[Score, CutScore | None]:
    """The detector's own score, and what it would be of the states without the key words; None where the detector
    reads more than clean states, and so reads a cut itself."""
    needs = detector.trained.needs
    if set(needs.runs) <= _OWN_RUNS:
        uncut = {} if KNOCKOUT in passed.parts else {KNOCKOUT: CLEAN}  # there were no key words
        features = passed.features([item], needs, uncut)
    else:  # another text, or strengthened attention: a pass of its own
        features = detector.session.features([item], needs)
    (score,) = detector.scores_of([item], features)
    reads = {*needs.runs, *(COLUMNS[name].run for name in needs.columns if name in COLUMNS)}
    if KNOCKOUT not in passed.parts or not reads or reads != {CLEAN}:
        return score, None
    decided = decide(detector.trained, passed.features([item], needs, {CLEAN: KNOCKOUT}))
    return score, CutScore(float(decided.probability[0]), float(decided.log_odds[0]), bool(decided.outside[0]))


def _refuse_no_numbers(log_odds: Mapping[str, Float[np.ndarray, " layer"]]) -> None:
    if not all(np.isfinite(found).all() for found in log_odds.values()):
        raise UserError("The model's states hold NaN or infinity; run the model in float32 (--dtype float32).")


def _unread(item: Item, detector: Detector) -> UserError:
    if item.answer.status == TOO_LONG:
        return UserError(
            f"Question and answer may take {item.answer.needs:,} tokens, and the model reads at most "
            f"{detector.session.lm.context:,}; shorten them."
        )
    return UserError("The answer is empty, and nothing can be read of it; give an answer, or another question.")
