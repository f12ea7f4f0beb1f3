"""The same prompt with other solved examples: what a result owes to the three that every question comes after.

They are put in as text, in the shape of the examples that are there, so that every chat template can have them.
"""

from collections.abc import Sequence
from dataclasses import replace

from anchorscope.answers.template import FEW_SHOT, Example, Template

EXAMPLE_SETS = (
    FEW_SHOT,
    (
        Example("In which country is the Eiffel Tower?", "France", "Eiffel Tower"),
        Example("Who painted the Mona Lisa?", "Leonardo da Vinci", "Mona Lisa"),
        Example("How many legs does a spider have?", "8", "spider"),
    ),
    (
        Example("What is the longest river in Africa?", "Nile", "Africa"),
        Example("Who composed The Four Seasons?", "Antonio Vivaldi", "The Four Seasons"),
        Example("What colour is a ruby?", "Red", "ruby"),
    ),
    (
        Example("Which ocean lies west of Portugal?", "Atlantic Ocean", "Portugal"),
        Example("Who formulated the theory of relativity?", "Albert Einstein", "theory of relativity"),
        Example("What is the freezing point of water in degrees Celsius?", "0", "water"),
    ),
)
"""A place, a person and something short each; the first are those of every prompt."""


def has_examples(template: Template) -> bool:
    """Whether a template shows the solved examples."""
    return all(example.question in template.head for example in FEW_SHOT)


def with_examples(template: Template, examples: Sequence[Example]) -> Template:
    """The template with these examples in the places of its own; as it is where it shows none."""
    if not has_examples(template):
        return template
    starts = [template.head.find(example.question) for example in FEW_SHOT]
    parts = [template.head[start:end] for start, end in zip(starts, [*starts[1:], len(template.head)], strict=True)]
    shown = [  # only what follows the question is searched for its answer: the new question may name it
        other.question + part.removeprefix(own.question).replace(own.answer, other.answer, 1)
        for part, own, other in zip(parts, FEW_SHOT, examples, strict=True)
    ]
    return replace(template, head=template.head[: starts[0]] + "".join(shown))
