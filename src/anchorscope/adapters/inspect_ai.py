"""A detector as a scorer of inspect_ai: every answer is sent to a running service, and its truth becomes the score.

Task(dataset=..., solver=generate(), scorer=truth(url="http://127.0.0.1:8642"))
inspect score logs/x.eval --scorer anchorscope/truth
"""

import os
from typing import Any

from anchorscope.adapters.score_service import ADDRESS, ask_score
from anchorscope.datasets.formats import first_line
from anchorscope.errors import UserError

try:
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.solver import TaskState  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise UserError(f"inspect_ai cannot be imported ({error}); pip install inspect_ai.") from None


@scorer(metrics=[mean(), stderr()], name="truth")  # type: ignore[untyped-decorator, unused-ignore]
def truth(url: str = ADDRESS, key: str = "ANCHORSCOPE_KEY", detector: str | None = None) -> Scorer:
    """The probability that the answer is true, from 0 to 1, as the detector of a running service says.

    `key` is the *name* of the environment variable that holds the service's key: what a scorer is given is written into
    the log. `detector` is one of the service's, the first where none is named. An answer without a word is not scored.
    """

    async def score(state: TaskState, target: Target) -> Score:
        answer = first_line(state.output.completion)
        found = await ask_score(state.input_text, answer, url, os.environ.get(key), detector)
        told: dict[str, Any] = {name: value for name, value in found.items() if name != "id"}
        warnings = "; ".join(found.get("warnings") or ())
        if found["truth_probability"] is None:
            return Score.unscored(answer=answer, explanation=warnings or "the answer is empty", metadata=told)
        return Score(
            value=found["truth_probability"], answer=answer, explanation=warnings or found["verdict"], metadata=told
        )

    return score
