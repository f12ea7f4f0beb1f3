"""What evaluation tools write beside a model's answer, in the words of a question file: the answer, and its label.

One score labels a whole file: the first that says nothing but right or wrong in the file's first rows.
"""

import re
from collections.abc import Mapping, Sequence

from anchorscope.datasets.raw_rows import Unusable, shown

SCORE = "score."
"""How the columns begin that hold the scores of a log."""
_THINKING = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_RIGHT, _WRONG = ("C", "c", "correct"), ("I", "i", "incorrect")
_BETWEEN = ("P", "p", "partial", "N", "n", "noanswer")  # verdicts too, and no labels


def first_line(text: str) -> str:
    """The first line that is seen of what a model wrote, a thinking block before it left out; empty if there is none.

    Detectors and probes read short answers: a second line is mostly the next question, or a reason.
    """
    head, closed, rest = text.partition("</think>")
    seen = rest if closed and "<think>" not in head else text  # many templates open the block in the prompt
    while block := _THINKING.match(seen):
        seen = seen[block.end() :]
    lines = seen.strip().splitlines()
    return lines[0].strip() if lines else ""


def label_of(value: object) -> bool | None:
    """A score that means right or wrong: C or I, true or false, 1 or 0; None for any other, "partly" included."""
    if isinstance(value, str) and value in (*_RIGHT, *_WRONG):
        return value in _RIGHT
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    return None


def scores_of(row: Mapping[str, object]) -> dict[str, object]:
    """The scores of a log's row, by column."""
    return {name: value for name, value in row.items() if name.startswith(SCORE)}


def deciding(rows: Sequence[Mapping[str, object]]) -> str | None:
    """Which of the scores of these rows labels the file; None where none says right or wrong every time."""
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if name in row]
        labels = [label_of(value) for value in values if value not in _BETWEEN]
        if labels and None not in labels:
            return name
    return None


def label_by(name: str | None, scores: Mapping[str, object]) -> bool | None:
    """What this score says of an answer; None where there is none, an error where it is neither right nor wrong."""
    if name is None or scores.get(name) is None:
        return None
    label = label_of(scores[name])
    if label is None:
        raise Unusable(
            f"{name} is {shown(scores[name])}, neither right nor wrong; another score can be the label: --columns "
            f"truthful={SCORE if name.startswith(SCORE) else ''}NAME"
        )
    return label
