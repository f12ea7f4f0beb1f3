"""The result tables, built by column: the same as item by item."""

import numpy as np
import polars as pl
import pytest

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.artefacts.schema import ITEM_SCHEMA
from anchorscope.datasets.question import Question
from anchorscope.evidence.effects import Effect
from anchorscope.items import Item
from anchorscope.result_tables import confidence, effects_frame, items_frame
from anchorscope.spans.locate import ItemTokens, QuestionParts

NO_WAYS = pl.DataFrame(
    schema=dict.fromkeys(("site", "position", "item_id", "pathway"), pl.String())
)


def an_item(number: int) -> Item:
    """An item of any number; every fifth has no answer, every third no log-probabilities."""
    rng = np.random.default_rng(number)
    spans = tuple((2 * at, 2 * at + 1) for at in range(number % 3))
    question = Question(
        "d",
        f"q{number}",
        "Who?",
        ("a",) * (1 + number % 4),
        exact_spans=spans,
        metadata={"é": number},
    )
    ids = tuple(range(number % 40))
    answer = Answer(
        "x", ids, None if number % 3 == 0 else tuple(-rng.random(len(ids))), "answered"
    )
    label = Label(bool(number % 2), number, "used", 1.0)
    place = ItemTokens(
        (1, *ids), 1, (0,), ids, (number, 2, 1), "rules", QuestionParts((), (), ())
    )
    return Item(question, answer, label, None if number % 5 == 0 else place)


def test_items_are_what_the_records_say() -> None:
    items = [an_item(number) for number in range(300)]
    frame = items_frame(items, {3: 4}, NO_WAYS, ("mlp", "final"))
    assert dict(frame.schema) == ITEM_SCHEMA
    rows = frame.to_dicts()
    for row, item in zip(rows, items, strict=True):
        question, answer, place = item.question, item.answer, item.tokens
        # to the last bit
        assert (row["confidence_mean"], row["confidence_min"]) == confidence(answer)
        assert row["answers"] == list(question.answers)
        assert row["property_words"] == []
        assert row["exact_question"] == [list(span) for span in question.exact_spans]
        assert row["input_ids"] == (list(place.input_ids) if place else [])
        assert row["answer_tokens"] == (list(place.answer_tokens) if place else [])
        names = ("final", "answer_end", "answer_before")
        assert row["probe_positions"] == (
            dict(zip(names, place.positions, strict=True)) if place else None
        )
        assert row["metadata"] == f'{{"é": {question.metadata["é"]}}}'
    assert [row["fold"] for row in rows[2:5]] == [None, 4, None]


@pytest.mark.parametrize("ran", [[0, 2], []])
def test_effects_are_the_log_odds_of_the_items_that_ran(ran: list[int]) -> None:
    values = np.arange(2 * 3 * 1 * 3 * 4, dtype=np.float32).reshape(2, 3, 1, 3, 4) / 7
    clean, after = values
    effect = Effect(
        "knockout", "all", np.array(ran, int), np.array(ran, int), after[ran], None
    )
    frame = effects_frame("d", ["a", "b", "c"], ("final",), clean, [effect])
    assert frame.schema["logit_clean"] == pl.List(pl.Float32)
    assert frame.height == len(ran) * 3
    chosen = frame.filter(pl.col("site") == "mlp")
    assert chosen["item_id"].to_list() == ["abc"[at] for at in ran]
    assert chosen["logit_clean"].to_list() == clean[ran, 0, 1].tolist()
    assert chosen["logit_after"].to_list() == after[ran, 0, 1].tolist()
