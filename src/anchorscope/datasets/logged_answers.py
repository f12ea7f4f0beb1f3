"""What evaluation tools write beside a model's answer, in the words of a question file: the answer, and its label."""

import re

_THINKING = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_RIGHT, _WRONG = ("C", "c", "correct"), ("I", "i", "incorrect")


def first_line(text: str) -> str:
    """The first line that is seen of what a model wrote, a thinking block before it left out; empty if there is none.

    Detectors and probes read short answers: a second line is mostly the next question, or a reason.
    """
    seen = _THINKING.sub("", text, count=1) if _THINKING.match(text) else text
    lines = seen.strip().splitlines()
    return lines[0].strip() if lines else ""


def label_of(value: object) -> bool | None:
    """A score that means right or wrong: C or I, true or false, 1 or 0; None for any other, "partly" included."""
    if isinstance(value, str) and value in (*_RIGHT, *_WRONG):
        return value in _RIGHT
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    return None
