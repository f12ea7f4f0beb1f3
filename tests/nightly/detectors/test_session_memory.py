"""Memory that runs out while answers are scored: the same scores, and later passes are smaller from the start."""

from collections.abc import Callable

import pytest
import torch

from anchorscope.detectors.detector import Detector
from anchorscope.engine import batching
from anchorscope.models.language_model import LanguageModel
from detector_cases import PAIRS, trained_on


def test_what_memory_did_not_hold_once_is_not_tried_again(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector, fits, refused = Detector(trained_on(tiny_llama), tiny_llama, 2048), batching._fits, []
    wanted = [one.log_odds for one in detector.score_many(PAIRS)]
    assert detector.session.planner.batch_tokens == 2048

    def small(run: Callable[[list[int]], None], batch: list[int]) -> bool:
        def short(items: list[int]) -> None:
            if len(items) > 2:
                refused.append(len(items))
                raise torch.OutOfMemoryError("CUDA out of memory")
            run(items)

        return fits(short, batch)

    monkeypatch.setattr(batching, "_fits", small)
    assert [one.log_odds for one in detector.score_many(PAIRS)] == pytest.approx(wanted, abs=1e-4)
    assert refused
    assert detector.session.planner.batch_tokens < 2048
    refused.clear()
    assert [one.log_odds for one in detector.score_many(PAIRS)] == pytest.approx(wanted, abs=1e-4)
    assert not refused
