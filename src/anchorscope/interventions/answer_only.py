"""Answer only: the question is dropped and the answer read by itself, afresh.

Once with the template kept, an empty line where the question was, and once bare. Bare is not quite nothing: the
sequence keeps its first token, since models use it as a sink for idle attention and would treat the answer's first
word as one.
"""

from collections.abc import Sequence

import numpy as np

from anchorscope.interventions.rewriting import Rewriting, Rewritten, Spoken, Writer, answered

EVIDENCE = "answer-only"


def _template_kept(items: Sequence[Spoken], some: Sequence[int], writer: Writer, rng: np.random.Generator
) -> list[Rewritten]:  # fmt: skip
    sequences = writer.sequences([items[index] for index in some], [""] * len(some))
    return [_dropped(items, index, sequence.ids[: sequence.answer_start])
            for index, sequence in zip(some, sequences, strict=True)]  # fmt: skip


def _bare(items: Sequence[Spoken], some: Sequence[int], writer: Writer, rng: np.random.Generator) -> list[Rewritten]:
    return [_dropped(items, index, items[index].prompt.ids[:1]) for index in some]


def _dropped(items: Sequence[Spoken], index: int, before: tuple[int, ...]) -> Rewritten:
    sequence = answered(before, items[index])
    return Rewritten(index, 0, sequence, len(items[index].tokens.sequence.ids) - len(sequence.ids))


ANSWER_TEMPLATE = Rewriting(
    "answer-template", "the question dropped, the template kept", _template_kept, EVIDENCE, "no question"
)
ANSWER_BARE = Rewriting("answer-bare", "nothing but the answer", _bare, EVIDENCE, "bare")
