"""A detector as an uncertainty estimator of lm-polygraph.

estimator = AnchorEstimator("runs/mine", model)    # model: lm-polygraph's WhiteboxModel
estimate_uncertainty(model, estimator, input_text=estimator.prompt("Who wrote Dracula?"))

lm-polygraph generates; the estimator needs nothing of it but the tokens of inputs and answers, and reads the states
itself, in passes of its own. So it can stand beside any other estimator and costs the others nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.adapters.prompts import question_of_prompt, visible_text
from anchorscope.datasets.formats import first_line
from anchorscope.detectors.detector import Detector
from anchorscope.errors import UserError

try:
    from lm_polygraph.estimators.estimator import Estimator
except ImportError as error:
    raise UserError(
        f"lm-polygraph cannot be imported ({error}); see docs/adapters.md for how to install it."
    ) from None


class AnchorEstimator(Estimator):  # type: ignore[misc]
    """Uncertainty of an answer: minus the probability that it is true. Higher is worse."""

    def __init__(
        self,
        bundle: str | Path | Detector,
        model: Any = None,
        tokenizer: Any = None,
        *,
        same_prompt: bool = True,
    ) -> None:
        """The detector of a bundle, on a WhiteboxModel, or on a transformers model with its tokenizer.

        With `same_prompt` inputs must be the detector's own prompts, as `prompt(question)` makes them. Without, an
        input is a question, and its answer is scored as if given to the detector's prompt, which is a shift.
        """
        super().__init__(["input_tokens", "greedy_tokens"], "sequence")
        inner, its_tokenizer = (
            getattr(model, "model", None),
            getattr(model, "tokenizer", None),
        )
        if (
            inner is not None and its_tokenizer is not None
        ):  # lm-polygraph's own wrapper
            model, tokenizer = inner, its_tokenizer
        self.detector = (
            bundle
            if isinstance(bundle, Detector)
            else Detector.load(bundle, model, tokenizer)
        )
        self.same_prompt = same_prompt

    def __str__(self) -> str:
        return f"anchorscope-{self.detector.trained.name}{'' if self.same_prompt else '-question'}"

    def prompt(self, question: str) -> str:
        """The text that the model must be given for this question."""
        return self.detector.trained.setting.template.text(question)

    def __call__(self, stats: Mapping[str, Any]) -> NDArray[np.float64]:
        """Minus the probability of "truthful" per item, as lm-polygraph's ECE wants it; NaN for an empty answer."""
        template, tokenizer = (
            self.detector.trained.setting.template,
            self.detector.session.lm.tokenizer,
        )
        questions = [
            question_of_prompt(template, tokenizer, ids)
            if self.same_prompt
            else visible_text(tokenizer, ids)
            for ids in stats["input_tokens"]
        ]
        answers = [
            first_line(visible_text(tokenizer, ids)) for ids in stats["greedy_tokens"]
        ]
        scores = self.detector.score_many(zip(questions, answers, strict=True))
        truth = [score.truth_probability for score in scores]
        return np.array(
            [np.nan if value is None else -value for value in truth], dtype=np.float64
        )
