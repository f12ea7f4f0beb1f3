"""The same prompt with other solved examples, or with the permission to say "I don't know"; and whether an answer does.

Examples are put in as text, in the shape of those that are there, so that every chat template can have them. With the
permission come two questions that nobody can answer; the last example still has an answer, since it is copied most.

An answer says "I don't know" if it is a phrase such as "unknown", or begins with a sentence such as "I don't know who
wrote it". A name that merely begins with such words is an answer: "Unknown Pleasures".
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from anchorscope.answers.template import FEW_SHOT, INSTRUCTION, Example, Template

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


def _parts(template: Template) -> tuple[str, list[str]] | None:
    """What stands before the solved examples, and each of these up to the next; None where the head shows none."""
    starts = [template.head.find(example.question) for example in FEW_SHOT]
    if -1 in starts:
        return None
    ends = [*starts[1:], len(template.head)]
    return template.head[: starts[0]], [template.head[start:end] for start, end in zip(starts, ends, strict=True)]


def has_examples(template: Template) -> bool:
    """Whether a template shows the solved examples."""
    return _parts(template) is not None


def with_examples(template: Template, examples: Sequence[Example]) -> Template:
    """The template with these examples instead of its own; as it is where it shows none."""
    parts = _parts(template)
    if parts is None:
        return template
    shown = [  # only what follows the question is searched for its answer: the new question may name it
        other.question + part.removeprefix(own.question).replace(own.answer, other.answer, 1)
        for part, own, other in zip(parts[1], FEW_SHOT, examples, strict=True)
    ]
    return replace(template, head=parts[0] + "".join(shown))


ALLOWED = "I don't know"
PERMISSION = f"If you do not know the answer, say: {ALLOWED}"
UNANSWERABLE = (
    Example("In which year was the harbour of Quelvorn Brask opened?", ALLOWED, "Quelvorn Brask"),
    Example("Who painted The Nettle King of Ostrelle?", ALLOWED, "The Nettle King of Ostrelle"),
)
"""Questions about places and works that do not exist."""


def allow_dont_know(template: Template) -> Template:
    """The same template with the permission; where it has examples, with two that have no answer among them."""
    head, parts = template.head, _parts(template)
    if parts is not None:
        before, turns = parts
        like, shape = FEW_SHOT[1], turns[1]  # the first may hold what is said but once
        shown = [
            shape.replace(like.question, example.question, 1).replace(like.answer, example.answer, 1)
            for example in UNANSWERABLE
        ]
        head = "".join([before, turns[0], shown[0], *turns[1:-1], shown[1], turns[-1]])
    if INSTRUCTION in head:
        return replace(template, head=head.replace(INSTRUCTION, f"{INSTRUCTION} {PERMISSION}.", 1))
    return replace(template, head=f"{PERMISSION}.\n\n{head}")


_I = r"(?:i |we |it |this |that )?(?:really |honestly |truly |simply |just )?"
_AM = r"(?:i am |i'm |im |we are |we're )?(?:really |honestly |truly )?"
_IT_IS = r"(?:(?:it|that|this|the answer|the exact answer)(?: is|'s) )?(?:currently |still |simply )?"
_TOLD = r"(?:information|data|evidence|record|records|answer|context)"
_APOLOGY = re.compile(
    r"(?:(?:i am |i'm )?(?:very |so )?sorry|i apologi[sz]e|unfortunately|honestly|well|as an? [a-z ]{2,40}?)"
    r"(?:[,.;:!]+ ?(?:but )?| but )",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    rf"{_I}(?:do not|don't|dont|did not|didn't) (?:really |actually |currently )?"
    rf"(?:know|recall|remember|have (?:an idea|an answer|a clue|any|enough|sufficient|access to))"
    rf"|{_AM}(?:not (?:entirely |quite |really |completely |too )?(?:sure|certain|aware of|able to)|unsure|uncertain"
    rf"|unable to|unaware of)"
    rf"|{_I}(?:cannot|can not|can't|cant|could not|couldn't)"
    rf" (?:answer|say|tell|determine|find|recall|remember|be (?:answered|known|determined))"
    rf"|(?:i |we )?(?:have )?(?:absolutely )?no (?:idea|clue)"
    rf"|(?:i have |there is |there's )?(?:no|not enough|insufficient) {_TOLD}",
    re.IGNORECASE,
)
_STATE = re.compile(
    rf"{_IT_IS}(?:unknown|unclear|uncertain|undetermined|not (?:exactly |precisely |yet )?(?:known|clear))|n/a",
    re.IGNORECASE,
)
_STATE_GOES_ON = re.compile(
    r" (?:to (?:me|us|anyone)|at (?:this|the) (?:time|moment)|from|because|as|since|who|what|where|when|which|whether"
    r"|how|if|for|but)\b"
)
_ENDS = re.compile(r"\s*(?:$|[.,;:!?…)\]\"]|[–—-]\s|\()")
_MARKS = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'", "“": '"', "”": '"'})
_AROUND = " \t\"'*_([{<«»>}])"


def says_dont_know(text: str) -> bool:
    """Whether an answer says that the answer is not known."""
    answer = " ".join(text.translate(_MARKS).split()).strip(_AROUND)
    if answer.isupper():
        answer = answer.lower()  # in capitals throughout, they tell nothing of names
    while apology := _APOLOGY.match(answer):
        answer = answer[apology.end() :].strip(_AROUND)
    sentence, state = _SENTENCE.match(answer), _STATE.match(answer)
    if sentence is not None and _goes_on(answer[sentence.end() :]):
        return True
    return state is not None and (
        bool(_ENDS.match(answer[state.end() :])) or bool(_STATE_GOES_ON.match(answer[state.end() :]))
    )


def _goes_on(rest: str) -> bool:
    """Whether a sentence may go on, or end, like this: with a mark or a small letter; a title has a capital."""
    return bool(_ENDS.match(rest)) or (rest.startswith(" ") and rest[1:2].islower())
