"""What an answer's score rests on, looked at live: the question's key words cut together and one by one, by layer.

One pass runs the answer clean, without all key words, without each of them alone, without words that a user chose, and
without as many tokens drawn at random, which is the control. At every layer the bundle's probe reads the states: ΔP is
the change of its probability of "truthful", in percentage points, as in a run's report.
These are numbers of one answer. What cutting does to many answers can be measured; what it says of a single one is
mostly noise (docs/evidence-parts.md), and the record says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from anchorscope.answers.generate import TOO_LONG
from anchorscope.answers.template import Prompt, build_prompts
from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import Span
from anchorscope.detectors.detector import Detector, asked
from anchorscope.detectors.features import CLEAN, Features, Needs
from anchorscope.detectors.live_record import CutScore, LiveCuts, QuestionWord
from anchorscope.detectors.runs import ANSWER_TOKENS, COLUMNS, QUESTION_ONLY
from anchorscope.detectors.scoring import Score, decide
from anchorscope.engine.sequences import CLEAN as CLEAN_VARIANT
from anchorscope.engine.sequences import SITES, Cut, Variant
from anchorscope.errors import UserError
from anchorscope.execute.parts import VariantPart
from anchorscope.execute.run_passes import run_answers, run_states
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.items import Item
from anchorscope.plan.passes import before_answers, plan_answers
from anchorscope.spans.locate import question_tokens
from anchorscope.spans.words import is_clear, words_as_written
from anchorscope.stats.streams import stream

MOST_ALONE = 16
"""Key words that are cut one by one; of more, the first ones."""
DRAWS = 3
"""Random cuts."""
CHOSEN, ALONE = "chosen", "word "
"""Names of runs: words that the user chose; a key word alone, with its number."""
_OWN_RUNS = {CLEAN, KNOCKOUT, QUESTION_ONLY}


def live_cuts(
    detector: Detector,
    question: str,
    answer: str | None,
    chosen: Sequence[int] | None = None,
    longest: int | None = None,
) -> LiveCuts:
    """Cuts of one question and answer; where there is none, the model gives one of at most `longest` tokens, and never
    more than the detector's own. `chosen` are the numbers of words of the question, counted from 0, that are cut
    together in a run of their own."""
    given = asked(question, answer)
    item = _answered(detector, given, longest)
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
    parts, places = _pass(detector, item, runs)
    score, cut = _scores(detector, item, parts, places)
    probes = detector.trained.layer_probes
    log_odds: dict[str, Float[np.ndarray, " layer"]] = {}
    if probes is not None:
        place = places.index((0, SITES.index(probes.site)))
        log_odds = {
            name: probes.log_odds(_states(part)[place][list(probes.layers)])[:, 0] for name, part in parts.items()
        }
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


def _answered(detector: Detector, question: Question, longest: int | None) -> Item:
    """As `ScoringSession.items` has it, with an answer that may be shorter."""
    session, setting = detector.session, detector.trained.setting
    work = plan_answers(
        [question],
        session.lm.tokenizer,
        setting.template,
        _longest(detector, longest),
        session.planner.batch_tokens,
        session.planner.context,
    )
    (item,) = session.located([question], run_answers(session.executor, work, session.progress))
    return item


def _longest(detector: Detector, longest: int | None) -> int:
    own = detector.trained.setting.max_new_tokens
    return own if longest is None else min(own, longest)


def tokens_at_most(detector: Detector, question: str, answer: str | None, longest: int | None = None) -> int:
    """Tokens that `live_cuts` may run, all its runs together; a bound for queues, in other threads too."""
    given = asked(question, answer)
    tokenizer = detector.session.lm.tokenizer
    own = len(tokenizer(given.question, add_special_tokens=False)["input_ids"])
    said = (
        _longest(detector, longest) if answer is None else len(tokenizer(answer, add_special_tokens=False)["input_ids"])
    )
    rows = 3 + DRAWS + min(MOST_ALONE, own)
    return int(rows * (own + said + 8))  # what stands between question and answer


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


def _pass(
    detector: Detector, item: Item, runs: Mapping[str, Variant]
) -> tuple[dict[str, VariantPart], tuple[tuple[int, int], ...]]:
    """All runs together, and where the states of each were kept: (position, site)."""
    session, needs = detector.session, detector.trained.needs
    own = [key for key in needs.states if key[0] in _OWN_RUNS]
    probes = detector.trained.layer_probes
    sites = {site for _, site, _ in own} | ({probes.site} if probes is not None else set())
    before = {site for run, site, _ in own if run == QUESTION_ONLY}
    sequence = item.sequence((session.setting.position,))
    if before:
        sequence = replace(sequence, read_at=(*sequence.read_at, sequence.answer_start - 1))
    places = (*((0, SITES.index(site)) for site in sorted(sites)), *((1, SITES.index(site)) for site in sorted(before)))
    prefix = before_answers(item.located.input_ids[: min(item.located.prefix_length, *sequence.read_at)], [sequence])
    work = session.planner.states("live cuts", [sequence], prefix, list(runs.values()))
    told = any(name in COLUMNS for name in needs.columns)
    work = replace(work, keep=(places,) * len(runs), answer_stats=told)
    found = run_states(session.executor, work, session.progress).variants
    return dict(zip(runs, found, strict=True)), places


def _scores(
    detector: Detector, item: Item, parts: Mapping[str, VariantPart], places: Sequence[tuple[int, int]]
) -> tuple[Score, CutScore | None]:
    """The detector's own score, and what it would be of the states without the key words; None where the detector
    reads more than clean states, and so looks at a cut itself."""
    needs = detector.trained.needs
    if set(needs.runs) <= _OWN_RUNS:
        features = _features(needs, item, parts, places, {})
    else:  # another text, or strengthened attention: a pass of its own
        features = detector.session.features([item], needs)
    (score,) = detector.scores_of([item], features)
    reads = {*needs.runs, *(COLUMNS[name].run for name in needs.columns if name in COLUMNS)}
    if KNOCKOUT not in parts or not reads or reads != {CLEAN}:
        return score, None
    decided = decide(detector.trained, _features(needs, item, parts, places, {CLEAN: KNOCKOUT}))
    return score, CutScore(float(decided.probability[0]), float(decided.log_odds[0]), bool(decided.outside[0]))


def _features(
    needs: Needs,
    item: Item,
    parts: Mapping[str, VariantPart],
    places: Sequence[tuple[int, int]],
    instead: Mapping[str, str],
) -> Features:
    """What a detector reads, from the states at hand; `instead` of a run another is taken."""

    def part(run: str) -> VariantPart:
        own = CLEAN if run == QUESTION_ONLY else instead.get(run, run)
        return parts.get(own, parts[CLEAN])  # without key words the knockout is the clean run

    states = {}
    for run, site, layer in needs.states:
        place = places.index((int(run == QUESTION_ONLY), SITES.index(site)))
        states[run, site, layer] = _states(part(run))[place, layer]
    columns: dict[str, Float[np.ndarray, " item"]] = {}
    for name in needs.columns:
        if name == ANSWER_TOKENS:
            columns[name] = np.array([len(item.answer.ids)], dtype=np.float64)
            continue
        stats = part(COLUMNS[name].run).answers
        assert stats is not None, "a pass that is told to score answers scores them"
        columns[name] = np.array([COLUMNS[name].made(one) for one in stats.by_item()], dtype=np.float64)
    return Features(1, states, columns)


def _states(part: VariantPart) -> Float[Tensor, "place layer item d_model"]:
    assert part.states is not None, "a pass that is told to keep states keeps them"
    return part.states


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
