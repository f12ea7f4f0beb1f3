"""A worker process that has just begun can fit what modules above it define."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from anchorscope.evidence.tables import Evidence, evidence_tables
from anchorscope.execute.wire import pack
from anchorscope.plan.device_work import plan_device_work
from anchorscope.progress import Silent
from anchorscope.stats.estimate import group_weights
from evidence_synthetic import random_measured

ITEMS, LAYERS, WIDTH, FOLDS = 60, 3, 8, 2


def evidence() -> Evidence:
    draw, where = np.random.default_rng(4), ("mlp", "final")
    measured = random_measured(ITEMS, LAYERS, FOLDS, n_none=40)
    texts = [f"text {number}" for number in range(ITEMS)]
    some = [None, *draw.normal(size=ITEMS - 1).tolist()]
    return Evidence(
        "Tiny", "facts", texts, texts, texts, [None, *texts[1:]], some, some, dict.fromkeys(measured.after, "all"),
        {where: measured}, {"knockout": draw.normal(size=(LAYERS, ITEMS))}, where,
        group_weights(measured.groups, 20, draw),
    )  # fmt: skip


def test_a_worker_that_has_just_begun_knows_the_records_of_modules_above(tmp_path: Path) -> None:
    """Here they were imported long ago; a worker imports them when the first one comes."""
    packed, place = pack(plan_device_work("evidence", evidence_tables, (evidence(),), "cpu")), tmp_path / "work"
    place.write_bytes(packed.body)
    text = (
        "import sys; from anchorscope.execute.wire import unpack; from anchorscope.progress import Silent; "
        "assert 'anchorscope.evidence.tables' not in sys.modules; "
        f"found = unpack(open({str(place)!r}, 'rb').read(), {{}}).run(Silent()); print(*sorted(found))"
    )
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
    assert told == sorted(evidence_tables(evidence(), Silent()))
