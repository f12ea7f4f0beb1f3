"""Is this the model that a detector was trained on? Its states mean nothing in any other."""

import torch

from anchorscope.answers.template import make_template
from anchorscope.detectors.trained import DetectorSetting, TrainedDetector
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel, model_fingerprint, tokenizer_fingerprint


def refuse_other_model(trained: TrainedDetector, lm: LanguageModel) -> tuple[str, ...]:
    """Refuses another shape, tokenizer, template or other weights; what is different and may be, as warnings."""
    setting, found = trained.setting, str(lm.dtype).removeprefix("torch.")
    shape, own = (lm.n_layers, lm.d_model), (setting.n_layers, setting.d_model)
    if shape != own:
        raise _other(trained, lm, f"it has {shape[0]} layers of width {shape[1]} instead of {own[0]} of {own[1]}")
    if tokenizer_fingerprint(lm.tokenizer) != setting.tokenizer:
        raise _other(trained, lm, "its tokenizer is another one")
    if make_template(setting.template.kind, lm.tokenizer, lm.needs_bos) != setting.template:
        raise UserError(
            f"Detector {trained.name!r} was trained with another {setting.template.kind} prompt than this anchorscope "
            f"writes for the model (its text or its examples have changed); use the version that made it"
            f"{_version(trained)}, or train it again with anchorscope detect."
        )
    if _fingerprint(setting, lm) == setting.fingerprint:
        return () if found == setting.dtype else (f"dtype differs: trained in {setting.dtype}, scored in {found}",)
    lost = "" if found == setting.dtype else f" (or were rounded: it runs in {found}, training in {setting.dtype})"
    raise _other(trained, lm, f"its weights are others{lost}")


def _fingerprint(setting: DetectorSetting, lm: LanguageModel) -> str:
    """Of the model, in the precision of the training."""
    wanted = getattr(torch, setting.dtype, None)
    return model_fingerprint(lm.model, wanted if isinstance(wanted, torch.dtype) and wanted != lm.dtype else None)


def _other(trained: TrainedDetector, lm: LanguageModel, why: str) -> UserError:
    return UserError(
        f"Detector {trained.name!r} was trained on model {trained.setting.model!r} and does not fit {lm.name!r}: "
        f"{why}; score with that model ({trained.setting.source}), or train a detector on this one (anchorscope "
        f"detect)."
    )


def _version(trained: TrainedDetector) -> str:
    made = trained.card.versions.get("anchorscope")
    return f" ({made})" if made else ""
