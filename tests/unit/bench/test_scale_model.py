"""The cost model: a hand calculation, more workers never take longer, the coordinator is the limit in the end."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from anchorscope.bench.scale_model import (
    MEASURED,
    Costs,
    ModelSize,
    PassCost,
    fit_coordinator,
    one_coordinator,
    pass_times,
    read_table,
    run_time,
    side_by_side,
    states_gb,
)
from repo import ROOT

SMALL = ModelSize("small", layers=10, d_model=100, parameters=1e9, operations_per_s=1e12)
COSTS = Costs(
    passes={"clean": PassCost(tokens=50, rate=1.0, places=3, other_bytes=0)},
    batch_tokens=1000,
    coordinator_per_shard=0.01,
    coordinator_per_mb=0.1,
    network_mb_per_s=30.0,
    load_seconds=5.0,
    read_mb_per_s=1000.0,
    host_per_item=0.001,
    fit_per_value=1e-6,
    evidence_per_value=1e-4,
)


def test_a_run_by_hand():
    # 1,000 items × 50 tokens × 2e9 operations at 1e12 per second: 100 s on one GPU, in 50 shards of 2 s.
    # 3 places × 10 layers × 100 × 2 bytes: 6 kB an item, 6 MB: the coordinator takes 50 × 0.01 + 6 × 0.1 = 1.1 s.
    (one,) = pass_times(SMALL, 1000, COSTS).values()
    assert (one.work, one.coordinator, one.network, one.shard) == pytest.approx((100.0, 1.1, 0.2, 2.0))
    assert one.wall(4) == pytest.approx(25 + 2)
    assert one.most_workers == pytest.approx(100 / 1.1)
    # Loading: 5 s and 2 GB at 1 GB/s. Alone: 1,000 × (1 ms + 10 × (0.1 ms + 100 × 1 µs)) = 3 s for a dataset.
    found = run_time(SMALL, 2, 1000, 4, COSTS)
    assert (found.load, found.passes, found.alone) == pytest.approx((7.0, 2 * 27.0, 2 * 3.0))
    assert found.wall == pytest.approx(67.0)
    assert one_coordinator([replace(SMALL, number=3)], 2, 1000, 4, COSTS).wall == pytest.approx(3 * 67.0)
    assert side_by_side([replace(SMALL, number=2)], 2, 1000, 8, COSTS) == pytest.approx(67.0)
    assert states_gb(SMALL, 1000, COSTS) == pytest.approx(0.006)


def test_more_gpus_never_take_longer_and_the_coordinator_is_the_limit():
    models, costs = read_table()
    for predict in (
        lambda gpus: one_coordinator(models, 4, 100_000, gpus, costs).wall,
        lambda gpus: side_by_side(models, 4, 100_000, gpus, costs),
    ):
        walls = [predict(gpus) for gpus in (12, 64, 512, 4096)]
        assert all(later <= before for before, later in pairwise(walls))
    for one in models:
        for part in pass_times(one, 100_000, costs).values():
            enough = int(part.most_workers) + 1
            assert part.wall(enough) == pytest.approx(part.wall(100 * enough))
            if enough > 2:
                assert part.wall(enough // 2) > 1.2 * part.wall(enough) - part.shard


def test_more_items_and_larger_results_take_longer():
    models, costs = read_table()
    few, many = (one_coordinator(models, 4, items, 8, costs).wall for items in (1000, 100_000))
    assert few < many
    heavier = {name: replace(one, places=one.places * 10) for name, one in costs.passes.items()}
    assert (
        one_coordinator(models, 4, 1000, 512, replace(costs, passes=heavier)).wall
        > one_coordinator(models, 4, 1000, 512, costs).wall
    )


def test_too_few_gpus_for_all_models_run_one_after_the_other():
    models = [replace(SMALL, number=3)]
    assert side_by_side(models, 1, 100, 2, COSTS) == one_coordinator(models, 1, 100, 2, COSTS).wall


def rows(per_shard: float, per_mb: float) -> list[dict[str, float]]:
    return [
        {"shards": shards, "bytes_received": mb * 1e6, "cpu_seconds": shards * per_shard + mb * per_mb}
        for shards, mb in ((10, 0.1), (4, 60.0), (20, 300.0))
    ]


def test_costs_of_a_coordinator_are_found_again():
    assert fit_coordinator(rows(0.002, 0.005)) == pytest.approx({"seconds_per_shard": 0.002, "seconds_per_mb": 0.005})
    assert fit_coordinator([]) is None
    negative = fit_coordinator(rows(-0.002, 0.005))
    assert negative["seconds_per_shard"] == 0
    assert negative["seconds_per_mb"] == pytest.approx(0.005, rel=0.1)


def test_every_number_of_the_table_says_where_it_is_from():
    table = json.loads(MEASURED.read_text(encoding="utf-8"))
    assert sum(one["number"] for one in table["models"]) == 12
    for name, entry in table["costs"].items():
        assert entry["from"], name
    for name, record in table["runs"].items():
        assert record is None or record["kind"] == "scale", name


def test_the_page_shows_what_the_model_predicts():
    models, costs = read_table()
    log_odds = replace(costs, passes={name: replace(one, places=0) for name, one in costs.passes.items()})
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    for gpus in (8, 64, 512):
        single = one_coordinator(models, 4, 100_000, gpus, costs).wall / 3600
        beside = side_by_side(models, 4, 100_000, gpus, costs) / 3600
        reduced = side_by_side(models, 4, 100_000, gpus, log_odds) / 3600
        assert f"| {gpus} | {single:.1f} h | {beside:.1f} h | {reduced:.1f} h |" in page
    for one in models:
        most = min(part.most_workers for part in pass_times(one, 100_000, costs).values())
        assert f"| {one.name} | {most:.1f} | {states_gb(one, 100_000, costs):,.0f} GB |" in page
