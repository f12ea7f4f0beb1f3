"""The solved examples that every prompt holds: they show how short an answer should be."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A solved question of the prompt."""

    question: str
    answer: str
    subject: str


FEW_SHOT = (
    Example("What is the capital of Japan?", "Tokyo", "Japan"),
    Example("Who wrote Romeo and Juliet?", "William Shakespeare", "Romeo and Juliet"),
    Example("What is the chemical symbol of gold?", "Au", "gold"),
)
"""The examples of every prompt: a place, a person and a symbol, so that no kind of answer is favoured."""
