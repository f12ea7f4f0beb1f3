"""Asked and scored in one go: the text, the score and the warnings of `Detector.score`, whoever is asked beside."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.detectors import asking as asking_module
from anchorscope.detectors.asking import AnswerText, Asking, Wish, Written
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.features import CONFIDENCE
from anchorscope.detectors.trained import Score
from anchorscope.engine.continuous import Continuous, Row
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from detector_cases import CLEAN, CUT, added, probe, setting_of, trained_on
from tiny_models import byte_tokenizer, tiny_model

QUESTIONS = (
    "Who wrote Dracula?",
    "What is the capital of Peru?",
    "???",
    "Who painted The Night Watch?",
    "Who?",
    "In which year did the long war between the two houses of the small kingdom in the north end?",
)
CHAT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</{{ m['role'] }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPOKEN = [*range(ord("a"), ord("q")), *b"  \n\xc3\xa9"]
"""Bytes that the model below says: letters, spaces, line breaks, and the two halves of é."""
PAIR = "oc"
"""Two letters that are one token."""


@cache
def talker() -> LanguageModel:
    """A tiny model that says letters, spaces, line breaks, and half letters too."""
    model, tokenizer = tiny_model("llama"), byte_tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.add_tokens([PAIR])
    bytes_as_text = [bytes([one]).decode("latin-1") for one in SPOKEN]
    wanted = {tokenizer(one, add_special_tokens=False)["input_ids"][-1] for one in (PAIR, *bytes_as_text)}
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        for token in set(range(len(head))) - wanted:
            head[token] = 0.3 * head[sorted(wanted)[token % len(wanted)]]  # never the highest of all
    return wrap(model, tokenizer, name="talker")


@cache
def detectors() -> dict[str, Detector]:
    """Detectors that read in decoding all they need, nothing of it, or a part of it; at every position."""
    lm = talker()
    every = (
        probe(),
        probe(("knockout", *CLEAN[1:])),
        probe(CUT, 3),
        probe(("question-only", "residual", 3)),
        probe(("answer-only", "mlp", 1)),
        probe(("boost-question-1", "mlp", 2)),
    )
    columns = (*CONFIDENCE, "knockout_log_prob_min", "answer_tokens")
    made = {
        "probe": trained_on(lm),
        "probe, answer_end": trained_on(lm, setting=setting_of(lm, "answer_end")),
        "before the answer": trained_on(
            lm, setting=setting_of(lm, "answer_before"), fitted=added((probe(), probe(("question-only", "mlp", 2), 4)))
        ),
        "confidence": trained_on(lm, fitted=added((), CONFIDENCE), range=None),
        "knockout": trained_on(lm, fitted=added((probe(CUT),), ("knockout_log_prob_mean",)), range=None),
        "everything": trained_on(lm, fitted=added(every, columns)),
        "chat": trained_on(lm, setting=setting_of(lm, "final", "chat"), fitted=added(every, columns)),
        "outside": replace(trained_on(lm), range=replace(trained_on(lm).range, limit=0.0, longest=10)),  # type: ignore[type-var]
    }
    return {name: Detector(one, lm) for name, one in made.items()}


@cache
def offline(name: str, question: str) -> Score:
    return detectors()[name].score(question)


def same(found: Score | None, wanted: Score) -> None:
    assert found is not None
    assert (found.question, found.answer, found.verdict, found.warnings) == (
        wanted.question,
        wanted.answer,
        wanted.verdict,
        wanted.warnings,
    )
    for one, other in (
        (found.log_odds, wanted.log_odds),
        (found.truth_probability, wanted.truth_probability),
        (found.pathway_score, wanted.pathway_score),
    ):
        assert one == (other if other is None else pytest.approx(other, abs=1e-4))


def all_of(asking: Asking) -> Iterator[Written]:
    while len(asking):
        yield from asking.step()


def ask(wish: Wish, name: str | None = None, asking: Asking | None = None) -> tuple[str, Written]:
    """One answer, asked alone: its text, and its last piece."""
    asking = asking or Asking(talker(), detectors())
    assert asking.join(wish, name) is not None
    pieces = list(all_of(asking))
    assert all(one.reason is None and one.score is None for one in pieces[:-1])
    return "".join(one.text for one in pieces), pieces[-1]


@pytest.mark.parametrize("name", list(detectors()))
def test_every_detector_says_of_an_answer_what_it_says_offline(name: str) -> None:
    for question in QUESTIONS[::2]:
        wanted = offline(name, question)
        text, last = ask(Wish(question), name)
        same(last.score, wanted)
        assert text == wanted.answer
        assert last.reason == ("length" if any("truncated" in one for one in wanted.warnings) else "stop")


@settings(max_examples=8)
@given(
    plan=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(sorted(detectors())), st.sampled_from(QUESTIONS)),
            st.sampled_from(["step", "drop", "sample", "tokens"]),
        ),
        max_size=24,
    ),
    most_tokens=st.sampled_from([150, 10_000]),
)
def test_whoever_is_asked_beside_scores_are_the_same(plan: list[tuple[str, str] | str], most_tokens: int) -> None:
    asking = Asking(talker(), detectors(), most_tokens)
    asked: dict[int, tuple[str, str]] = {}
    texts: dict[int, str] = {}
    found: list[Written] = []
    for what in plan:
        if what == "drop" and texts:
            asking.drop(max(texts))
            asked.pop(max(texts), None)
        elif what == "sample":
            asking.join(Wish("Who knows?", temperature=1.5, seed=3), "probe")
        elif what == "tokens":
            asking.join(Wish(None, tuple(range(90)), max_new_tokens=5), None)
        elif isinstance(what, tuple):
            ticket = asking.join(Wish(what[1]), what[0])
            if ticket is None:
                assert most_tokens == 150
                assert len(asking)
            else:
                asked[ticket], texts[ticket] = what, ""
        else:
            found += asking.step()
    found += all_of(asking)
    for one in found:
        assert one.error is None
        if one.ticket in texts:
            texts[one.ticket] += one.text
    scores = {one.ticket: one.score for one in found if one.score is not None}
    for ticket, (name, question) in asked.items():
        same(scores[ticket], offline(name, question))
        assert texts[ticket] == offline(name, question).answer


def test_an_answer_with_a_seed_is_its_own_wherever_it_is_asked() -> None:
    wish = Wish(QUESTIONS[1], temperature=1.2, top_p=0.9, seed=11, max_new_tokens=12)
    text, last = ask(wish, "everything")
    asking, texts = Asking(talker(), detectors()), {}
    for question in QUESTIONS:
        asking.join(Wish(question), "confidence")
    ticket = asking.join(wish, "everything")
    for one in all_of(asking):
        texts[one.ticket] = texts.get(one.ticket, "") + one.text
        if one.ticket == ticket and one.score:
            same(one.score, last.score)  # type: ignore[arg-type]
    assert texts[ticket] == text
    others = {ask(replace(wish, seed=seed), "confidence")[0] for seed in range(4)}
    assert len(others) > 2
    assert len({ask(replace(wish, seed=None), "confidence")[0] for _ in range(4)}) > 1


def let_it_say(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """Every answer is this text, then a line break for ever; statistics of the tokens are not those of this text."""
    script = talker().tokenizer(said + 40 * "\n", add_special_tokens=False)["input_ids"]
    choose: Callable[..., list[tuple[int, tuple[float, ...]]]] = Continuous._choose

    def scripted(self: Continuous, rows: list[Row], ends: torch.Tensor) -> list[tuple[int, tuple[float, ...]]]:
        return [(script[len(row.ids)], told) for row, (_, told) in zip(rows, choose(self, rows, ends), strict=True)]

    monkeypatch.setattr(Continuous, "_choose", scripted)


def test_a_stop_text_ends_the_answer_before_it_and_is_scored_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[asking_module.Ended] = []
    scored = asking_module._scored
    monkeypatch.setattr(asking_module, "_scored", lambda some: ended.extend(some) or scored(some))
    detector = detectors()["everything"]

    def stopped(stop: str, wish: Wish) -> str:
        """The text, whose score is that of a second pass over the same tokens."""
        text, last = ask(replace(wish, stop=("zz", stop)), "everything")
        answer = ended[-1].answer()
        items = detector.session.located([ended[-1].planned.question], [answer])  # type: ignore[list-item]
        same(last.score, detector.score_items(items)[0])
        assert (answer.text, last.reason) == (text, "stop")
        return text

    for seed in range(3):
        wish = Wish(QUESTIONS[0], max_new_tokens=12, temperature=1.5, seed=seed)
        whole, _ = ask(wish, "everything")
        stop = whole[2:4]
        assert stopped(stop, wish) == whole[: whole.find(stop)].strip()
    let_it_say(monkeypatch, f" ab{PAIR}d")
    assert stopped(PAIR[1], Wish(QUESTIONS[0])) == "ab" + PAIR[0]  # inside a token: as if it had been given
    assert ended[-1].answer().log_probs is None
    text, last = ask(Wish(QUESTIONS[0], stop=("a",)), "probe")
    assert text == ""
    assert last.score is not None
    assert last.score.warnings == ("the answer is empty",)


@settings(max_examples=40)
@given(
    st.text(alphabet="ab é😀\n", max_size=40),
    st.lists(st.integers(1, 5), max_size=30),
    st.booleans(),
    st.sampled_from([(), ("ab",), ("b a", "é")]),
)
def test_pieces_are_whole_letters_and_together_the_text(
    said: str, steps: list[int], strips: bool, stop: tuple[str, ...]
) -> None:
    tokenizer = talker().tokenizer
    ids = tokenizer(said, add_special_tokens=False)["input_ids"]
    text, pieces, done = AnswerText(tokenizer, stop, strips, False, 1000), [], 0
    for n in steps:
        done += n
        pieces.append(text.take(ids[:done], over=False))
    pieces.append(text.take(ids, over=True))
    wanted = said[: min((place for one in stop if (place := said.find(one)) >= 0), default=len(said))]
    assert "".join(pieces) == (wanted.strip() if strips else wanted)
    assert not any("\ufffd" in piece for piece in pieces)
    assert text.stopped == (len(wanted) < len(said))


def test_an_answer_that_cannot_be_scored_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scored = asking_module._scored

    def refuse(ended: list[asking_module.Ended]) -> list[Score]:
        if any("Peru" in one.planned.question.question for one in ended):  # type: ignore[union-attr]
            raise UserError("not this one")
        return scored(ended)

    monkeypatch.setattr(asking_module, "_scored", refuse)
    asking, last = Asking(talker(), detectors()), {}
    for question in QUESTIONS:
        asking.join(Wish(question, max_new_tokens=3), "probe")
    last = {one.ticket: one for one in all_of(asking)}
    assert [str(last[ticket].error) for ticket in range(len(QUESTIONS))] == [
        "not this one" if "Peru" in question else "None" for question in QUESTIONS
    ]
    assert all(one.score is not None or one.error for one in last.values())


@pytest.mark.parametrize(
    ("wish", "name", "message"),
    [
        (Wish("Who " + "x" * 3000), "probe", "may take 3,.* tokens, and the model reads at most 2,048"),
        (Wish(None, tuple(range(200)), max_new_tokens=2000), None, "may take 2,200 tokens"),
        (Wish("Who?"), "prob", "Unknown detector 'prob'; allowed: .* Did you mean 'probe'"),
        (Wish(" "), "probe", "is empty"),
        (Wish(None), None, "Neither a question nor a prompt"),
        (Wish("Who?", (1, 2)), "probe", "Both a question and"),
        (Wish(None, (1, 999)), None, "holds token 999"),
        (Wish("Who?", max_new_tokens=0), "probe", "at most 0 tokens"),
        (Wish("Who?", temperature=-1.0), "probe", "temperature is -1"),
        (Wish("Who?", top_p=0.0), "probe", r"top_p is 0\.0"),
        (Wish("Who?", stop=("",)), "probe", "stop text is empty"),
        (Wish("Who?", risk=0.3), "probe", r"no threshold for the risk 0\.3"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_joins(wish: Wish, name: str | None, message: str) -> None:
    asking = Asking(talker(), detectors())
    for refused in (asking.cost, asking.join):
        with pytest.raises(UserError, match=message) as told:
            refused(wish, name)
        assert "\n" not in str(told.value)
    assert len(asking) == 0
