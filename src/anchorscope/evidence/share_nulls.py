"""States in which there should be little to find: the question alone, the answer alone, and random weights.

What a probe reads there is what it could know without the model's knowledge: how the question is put, how the answer is
worded, or both as they pass through weights that know nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.engine.sequences import CLEAN, Variant
from anchorscope.execute.executor import Executor
from anchorscope.execute.run_passes import run_states
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.interventions.intervention import Setting
from anchorscope.items import Item
from anchorscope.plan.interventions import plan_cut
from anchorscope.plan.passes import Place, Planner, shared_tokens
from anchorscope.progress import Progress

QUESTION_ONLY, ANSWER_ONLY = "question only", "answer only"
RANDOM_WEIGHTS = "random-weights"


def answer_only_states(
    executor: Executor, planner: Planner, items: Sequence[Item], setting: Setting, place: Place, progress: Progress
) -> Tensor:
    """States at the place of the answer without its question, [1, layer, item, d_model]."""
    position, site = place
    rewrite = INTERVENTIONS["answer-template"].rewrite
    assert rewrite is not None, "the question is dropped by writing the text anew"
    runs = sorted(rewrite(items, range(len(items)), setting), key=lambda run: run.item)
    sequences = [replace(run.sequence, read_at=(run.sequence.read_at[position],)) for run in runs]
    prefix = items[0].located.input_ids[: items[0].located.prefix_length]
    first = min(sequence.read_at[0] for sequence in sequences)
    work = planner.states(ANSWER_ONLY, sequences, shared_tokens(prefix[:first], sequences))
    part = run_states(executor, replace(work, keep=(((0, site),),)), progress).variants[0]
    assert part.states is not None, "a pass that is told to keep states keeps them"
    return part.states


def random_weight_states(
    executor: Executor, planner: Planner, items: Sequence[Item], setting: Setting, place: Place, progress: Progress
) -> tuple[Tensor, Tensor]:
    """Clean and cut states of the same items through a model that knows nothing, [1, layer, item, d_model] each."""
    planned = plan_cut(INTERVENTIONS[KNOCKOUT], items, setting)
    cut = Variant({run.item: run.cut for run in planned.runs})
    prefix = items[0].located.input_ids[: items[0].located.prefix_length]
    sequences = [item.sequence(setting.positions) for item in items]
    work = planner.states("random weights", sequences, prefix, (CLEAN, cut))
    work = replace(work, keep=((place,), (place,)), random_weights=True)
    clean, after = run_states(executor, work, progress).variants
    before, cut_off = clean.states, after.states
    assert before is not None, "a pass that is told to keep states keeps them"
    assert cut_off is not None, "and those under the cut"
    return before, cut_off
