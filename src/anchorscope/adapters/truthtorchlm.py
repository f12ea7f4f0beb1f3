"""A detector as a truth method of TruthTorchLM.

method = AnchorTruth("runs/mine", model, tokenizer)
generate_with_truth_value(model, messages, question=question, tokenizer=tokenizer, truth_methods=[method])
"""

from pathlib import Path
from typing import Any

from anchorscope.datasets.formats import first_line
from anchorscope.detectors.detector import Detector
from anchorscope.errors import UserError

try:
    from TruthTorchLM.truth_methods.truth_method import TruthMethod
except ImportError as error:
    raise UserError(
        f"TruthTorchLM cannot be imported ({error}); see docs/adapters.md for how to install it."
    ) from None


class AnchorTruth(TruthMethod):  # type: ignore[misc]
    """Truth value of an answer: the detector's calibrated log-odds. Higher is true.

    TruthTorchLM's own normaliser, a sigmoid at 0 with width 1, makes the detector's probability of it.
    """

    REQUIRES_NORMALIZATION = True

    def __init__(
        self,
        bundle: str | Path | Detector,
        model: Any = None,
        tokenizer: Any = None,
        *,
        same_prompt: bool = False,
    ) -> None:
        """The detector of a bundle on a transformers model with its tokenizer.

        TruthTorchLM passes the question, which is asked in the detector's prompt, and the answer, which is scored as if
        given there: answers made under another prompt are a shift. With `same_prompt` any other prompt is refused.

        Create it before the first generation: TruthTorchLM gives a tokenizer without a chat template one of its own,
        and a detector refuses another tokenizer than that of its training.
        """
        super().__init__()
        self.detector = (
            bundle
            if isinstance(bundle, Detector)
            else Detector.load(bundle, model, tokenizer)
        )
        self.same_prompt = same_prompt

    def forward_hf_local(
        self,
        model: Any,
        input_text: str,
        generated_text: str,
        question: str,
        all_ids: Any = None,
        tokenizer: Any = None,
        **others: Any,
    ) -> dict[str, Any]:
        """The truth value of what a local model generated; minus infinity for an empty answer."""
        if model is not self.detector.session.lm.model:
            raise UserError(
                "The detector was loaded on another model object than the one that generates; make AnchorTruth with "
                "the same model and tokenizer."
            )
        template = self.detector.trained.setting.template
        if self.same_prompt and not input_text.endswith(template.text(question)):
            raise UserError(
                f"The model was not given the prompt that the detector was trained with ({template.kind}); give that "
                f"prompt, or use same_prompt=False: the question is then asked in the detector's prompt."
            )
        score = self.detector.score(question, first_line(generated_text))
        return {
            "truth_value": float("-inf") if score.log_odds is None else score.log_odds,
            "generated_text": generated_text,
            "truth_probability": score.truth_probability,
            "verdict": score.verdict,
            "warnings": list(score.warnings),
        }

    def forward_api(
        self,
        model: str,
        messages: list[Any],
        generated_text: str,
        question: str,
        **others: Any,
    ) -> Any:
        """Refused: a model behind an interface shows no states."""
        raise UserError(
            f"A detector reads the states of the model, and {model!r} behind an interface shows none; give a "
            f"transformers model that is loaded here."
        )
