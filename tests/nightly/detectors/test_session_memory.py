"""Memory that runs out while answers are scored: the same scores, and later passes are smaller from the start."""

from typing import Any

import pytest

from anchorscope.detectors.detector import Detector
from anchorscope.errors import MemoryRanOut
from anchorscope.execute.worker import Worker
from anchorscope.models.language_model import LanguageModel
from detector_cases import PAIRS, trained_on


def test_what_memory_did_not_hold_once_is_not_tried_again(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector, run, refused = (
        Detector(trained_on(tiny_llama), tiny_llama, 2048),
        Worker.run,
        [],
    )
    wanted = [one.log_odds for one in detector.score_many(PAIRS)]
    assert detector.session.planner.batch_tokens == 2048

    def small(worker: Worker, shard: Any, progress: Any) -> Any:
        if any(len(batch) > 2 for batch in shard.batches):
            refused.append(shard)
            raise MemoryRanOut("CUDA out of memory")
        return run(worker, shard, progress)

    monkeypatch.setattr(Worker, "run", small)
    assert [one.log_odds for one in detector.score_many(PAIRS)] == pytest.approx(
        wanted, abs=1e-4
    )
    assert refused
    assert detector.session.planner.batch_tokens < 2048
    refused.clear()
    assert [one.log_odds for one in detector.score_many(PAIRS)] == pytest.approx(
        wanted, abs=1e-4
    )
    assert not refused
