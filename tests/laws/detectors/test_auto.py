"""`auto` is the stack near its training questions, and close to confidence on others."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.detectors.auto import SHARE_AWAY, Ranges
from anchorscope.detectors.features import CLEAN, CONFIDENCE, QUESTION_ONLY, Features
from anchorscope.detectors.fitted import WeightedSum
from anchorscope.detectors.training import Dataset
from anchorscope.stats.auc import auc
from made_detection import made_dataset, made_fits

DOMAINS, WIDTH = 6, 24
TRANSFERS, OWN_DIRECTION, FLIPPED, NOTHING = (
    "transfers",
    "own direction",
    "flipped",
    "nothing",
)


def made_world(kind: str, seed: int = 0, n: int = 480, new: bool = False) -> Dataset:
    """Six relations, each in a region of its own; confidence is equally good everywhere. Truth lies along one direction
    in all of them, along another one in each, or along one direction whose sign differs between relations. A new
    world's relations are others: `transfers` has the same direction there, `own direction` none, `flipped` the opposite
    one of most training relations. `nothing`: the states know nothing of truth."""
    rng = np.random.default_rng([seed, new])
    made = made_dataset(n=n, seed=seed, name="new" if new else "made")
    relation = np.arange(n) // 2 % DOMAINS
    truth = np.where(made.labels, 1.0, -1.0)
    direction = np.zeros((n, WIDTH))
    if kind == OWN_DIRECTION:
        direction[np.arange(n), relation] = 0.0 if new else 2.0
    elif kind != NOTHING:
        sign = np.where(relation < 2, -1.0, 1.0) if kind == FLIPPED else 1.0
        direction[:, 0] = 1.5 * (-1.0 if kind == FLIPPED and new else sign)
    region = np.zeros((n, WIDTH))
    region[np.arange(n), WIDTH // 2 + relation + DOMAINS * new] = 6.0
    states = {
        (CLEAN, site, layer): torch.from_numpy(
            (rng.normal(size=(n, WIDTH)) + truth[:, None] * direction + region).astype(
                np.float32
            )
        )
        for site in ("mlp", "residual")
        for layer in (3, 4)
    }
    for layer in (3, 4):
        before = rng.normal(size=(n, WIDTH)) + region
        states[QUESTION_ONLY, "mlp", layer] = torch.from_numpy(
            before.astype(np.float32)
        )
    columns = {name: rng.normal(size=n) + 0.35 * truth for name in CONFIDENCE}
    relations = [f"relation {number}" for number in relation]
    return replace(made, features=Features(n, states, columns), relations=relations)


def areas_of(
    fits, unseen: Dataset, names: tuple[str, ...]
) -> tuple[list[float], list[float]]:
    """AUC of detectors on held-out answers of the training domains, and on a new world."""
    labels, outside = fits.data.training.labels[0], ~fits.data.training.members[0]
    own = [
        float(auc(fits.fit(name).scores[0].numpy()[outside], labels[outside]))
        for name in names
    ]
    built = [fits.fit(name).build(2) for name in names]
    return own, [
        float(auc(fitted.log_odds(unseen.features), unseen.labels)) for fitted in built
    ]


@pytest.mark.parametrize("kind", [OWN_DIRECTION, FLIPPED])
@pytest.mark.parametrize("seed", range(2))
def test_where_the_probe_does_not_transfer_auto_stays_near_confidence_there_and_uses_the_stack_at_home(
    seed: int, kind: str
) -> None:
    fits = made_fits(made_world(kind, seed))
    own, new = areas_of(
        fits,
        made_world(kind, seed + 50, new=True),
        ("auto", "confidence", "probe+confidence"),
    )
    assert new[2] < new[1] - 0.02, "the probe misleads on other data"
    assert new[1] - new[0] < 0.5 * (new[1] - new[2]), (
        "less than half of what it costs the stack"
    )
    if kind == OWN_DIRECTION:
        assert own[0] > own[2] > own[1] + 0.02, "at home the probe helps"


def test_where_the_probe_transfers_auto_uses_it() -> None:
    fits = made_fits(made_world(TRANSFERS))
    own, new = areas_of(
        fits, made_world(TRANSFERS, seed=50, new=True), ("auto", "confidence")
    )
    assert own[0] - own[1] > 0.02
    assert new[0] - new[1] > 0.005


def test_a_stack_that_does_not_help_leaves_confidence() -> None:
    fits = made_fits(made_world(NOTHING))
    auto, confidence = fits.fit("auto").scores, fits.fit("confidence").scores
    unused = [
        torch.equal(own, other.float())
        for own, other in zip(auto, confidence, strict=True)
    ]
    assert any(unused)
    areas = [fits.data.training.inner_auc(scores) for scores in (auto, confidence)]
    assert float((areas[0] - areas[1]).abs().max()) < 0.02
    assert all(
        type(fits.fit("auto").build(number)) is WeightedSum
        for number in np.flatnonzero(unused)
    )


def test_near_is_measured_on_the_state_before_the_answer() -> None:
    world = made_world(OWN_DIRECTION)
    fits = made_fits(world)
    moved = {
        key: states + 50 if key[0] == QUESTION_ONLY else states
        for key, states in world.features.states.items()
    }
    fitted, confidence = fits.fit("auto").build(2), fits.fit("confidence").build(2)
    away = fitted.log_odds(replace(world.features, states=moved))
    stack = fitted.detector.log_odds(world.features)
    expected = SHARE_AWAY * stack + (1 - SHARE_AWAY) * confidence.log_odds(
        world.features
    )
    np.testing.assert_allclose(away, expected, atol=1e-5)
    near = fitted.log_odds(world.features)
    assert np.abs(near - stack).mean() < 0.6 * np.abs(away - stack).mean()


def test_the_range_knows_its_own_and_tells_strangers() -> None:
    generator = torch.Generator().manual_seed(3)
    mixing = torch.randn(24, 24, generator=generator)
    own, more = (
        torch.randn(n, 24, generator=generator) @ mixing + 5 for n in (1000, 2000)
    )
    made = replace(
        made_dataset(n=1000),
        groups=np.arange(1000),
        features=Features(1000, {(CLEAN, "mlp", 3): own}, {}),
    )
    span = Ranges(made_fits(made).data, made.groups, CLEAN).build(2)
    assert (span.distance_of(more) > span.limit).mean() == pytest.approx(0.05, abs=0.02)
    assert (span.distance_of(own) <= span.limit).mean() > 0.95
    assert (span.distance_of(more + 60 * mixing[0]) > span.limit).all()
    assert (span.distance_of(-more) > span.limit).mean() > 0.5
