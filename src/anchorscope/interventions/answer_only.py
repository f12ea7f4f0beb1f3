"""Answer only: the question is dropped and the answer read by itself, afresh.

Once with the template kept, an empty line where the question was, and once bare. Bare is not quite nothing: the
sequence keeps its first token, since models use it as a sink for idle attention and would treat the answer's first
word as one.
"""

from collections.abc import Sequence

from anchorscope.catalogue import INTERVENTIONS as ENTRIES
from anchorscope.interventions.intervention import Intervention, ItemRun, Setting, answered
from anchorscope.items import Item


def _template_kept(items: Sequence[Item], some: Sequence[int], setting: Setting) -> list[ItemRun]:
    sequences = setting.writer().sequences([items[index] for index in some], [""] * len(some), setting.positions)
    return [_dropped(items, index, sequence.ids[: sequence.answer_start], setting)
            for index, sequence in zip(some, sequences, strict=True)]  # fmt: skip


def _bare(items: Sequence[Item], some: Sequence[int], setting: Setting) -> list[ItemRun]:
    return [_dropped(items, index, items[index].located.input_ids[:1], setting) for index in some]


def _dropped(items: Sequence[Item], index: int, before: tuple[int, ...], setting: Setting) -> ItemRun:
    sequence = answered(before, items[index], setting.positions)
    return ItemRun(index, sequence, n_changed=len(items[index].located.input_ids) - len(sequence.ids))


ANSWER_TEMPLATE = Intervention(ENTRIES["answer-template"], rewrite=_template_kept, variant="no question")
ANSWER_BARE = Intervention(ENTRIES["answer-bare"], rewrite=_bare, variant="bare")
