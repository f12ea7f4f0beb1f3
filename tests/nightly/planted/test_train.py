"""Training: a step teaches, and a model that has not learned its language is not saved."""

from pathlib import Path

import pytest
import torch

import train_planted_model as training


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches so small that a test has time for them."""
    for name, value in {"_BATCH": 16, "_CHECKED": 60, "_CHECK_EVERY": 1, "_COOL_DOWN": 1, "_WARM_UP": 1}.items():
        monkeypatch.setattr(training, name, value)


def test_the_same_seed_trains_the_same_and_another_something_else(hurried: None, monkeypatch) -> None:
    monkeypatch.setattr(training, "GOAL", 0.0)
    first, again, other = (training.train(seed, 1, lambda text: None).model.state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_what_has_not_been_learned_is_not_saved(hurried: None, tmp_path: Path, capsys) -> None:
    assert training.main(["--out", str(tmp_path / "model"), "--steps", "1"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("error: The planted model has not learned its language: right verdicts question-true ")
    assert told[-1].endswith("give more --steps (found 1) or another --seed.")
    assert not (tmp_path / "model").exists()
