"""What cannot be measured is told with its reason, and does not keep the rest from being measured."""

from typing import Any

import numpy as np
import pytest

from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import Scoring, measure
from anchorscope.execute.executor import LocalExecutor
from anchorscope.interventions.cuts import of_experiments
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import passes_of, plan_experiment
from anchorscope.progress import Silent
from made_items import make_item, make_setting, planner_of, random_probes

N = 10


def measured(
    lm: LanguageModel, question: int, **setting: Any
) -> tuple[list[str], list[str]]:
    """Names of what was measured, and reasons; every item has its exact token at one place, the answer at 20."""
    rng = np.random.default_rng(0)
    items = [
        make_item(
            (256, 5, 6, *rng.integers(0, 256, 21).tolist()),
            20,
            (question,),
            3,
            name=f"item-{index}",
        )
        for index in range(N)
    ]
    chosen = make_setting(**({"positions": ("final",)} | setting))
    planner = planner_of(lm, 300)
    planned, missing = plan_experiment(
        of_experiments(("knockout", "edges")), items, chosen, planner.windows, needed=5
    )
    sets = tuple(tuple(random_probes(lm) for _ in SITES) for _ in chosen.positions)
    passes = passes_of(planned, items, chosen, planner)
    scoring = Scoring(sets, np.arange(N) % 2)
    effects, _ = measure(
        LocalExecutor(lambda: lm),
        passes,
        scoring,
        chosen,
        lambda one: [(0, 1)],
        Silent(),
    )
    return [one.intervention for one in effects], [one.reason for one in missing]


@pytest.mark.parametrize("tiny", ["mistral", "gemma3_text"], indirect=True)
def test_direct_edges_that_a_window_hides_are_left_out_and_the_rest_is_measured(
    tiny: LanguageModel,
) -> None:
    near, far = measured(tiny, question=17), measured(tiny, question=5)
    assert near == (["knockout", "random", "direct", "none"], [])
    assert far[0] == ["knockout", "random", "none"]
    assert "sliding window already hides the exact tokens" in far[1][0]


def test_direct_edges_repeat_the_knockout_or_do_not_reach_what_is_read(
    tiny_llama: LanguageModel,
) -> None:
    names, (reason,) = measured(tiny_llama, 5, edges="direct")
    assert names == ["knockout", "random", "none"]
    assert "run with --edges all" in reason
    names, (reason,) = measured(tiny_llama, 5, positions=("final", "answer_before"))
    assert names == ["knockout", "random", "none"]
    assert "a position before the answer's tokens is read" in reason
    assert measured(tiny_llama, 5)[0] == ["knockout", "random", "direct", "none"]
