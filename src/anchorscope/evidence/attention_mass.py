"""How much attention the tokens of each item receive in the clean run: what a control matched in attention goes by."""

from collections.abc import Sequence

from anchorscope.engine.attention_mass import AttentionMass
from anchorscope.execute.executor import Executor
from anchorscope.execute.run_passes import run_attention
from anchorscope.items import Item
from anchorscope.plan.passes import AttentionPass, Planner
from anchorscope.progress import Progress


def run_attention_mass(
    executor: Executor, planner: Planner, items: Sequence[Item], positions: Sequence[str], edges: str,
    progress: Progress,
) -> list[AttentionMass]:  # fmt: skip
    """Of every item in turn; `edges` says which later tokens count."""
    located = items[0].located
    prefix = located.input_ids[: located.prefix_length]
    work = planner.states("attention mass", [item.sequence(positions) for item in items], prefix)
    return run_attention(executor, AttentionPass(work, edges), progress)
