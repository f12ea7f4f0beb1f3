"""Flash cards: the question on the `front`, accepted answers on the `back`, and perhaps a model's `reply`."""

from collections.abc import Mapping

from anchorscope.datasets.formats import Format, answer_list


def translate(row: Mapping[str, object]) -> dict[str, object]:
    """The row under the names that anchorscope knows."""
    return {"question": row["front"], "answers": answer_list(row["back"], "back"), "model_answer": row.get("reply")}


FLASH_CARDS = Format("flash-cards", lambda row: row.keys() >= {"front", "back"}, translate)
