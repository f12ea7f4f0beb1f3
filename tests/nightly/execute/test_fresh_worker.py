"""A worker process that has just begun can fit what modules above it define."""

import subprocess
import sys
from pathlib import Path

from anchorscope.evidence.tables import evidence_tables
from anchorscope.execute.wire import pack
from anchorscope.plan.passes import plan_device_work
from anchorscope.progress import Silent
from evidence_synthetic import some_evidence


def test_a_worker_that_has_just_begun_knows_the_records_of_modules_above(tmp_path: Path) -> None:
    """Here they were imported long ago; a worker imports them when the first one comes."""
    packed, place = pack(plan_device_work("evidence", evidence_tables, (some_evidence(),), "cpu")), tmp_path / "work"
    place.write_bytes(packed.body)
    text = (
        "import sys; from anchorscope.execute.wire import unpack; from anchorscope.progress import Silent; "
        "assert 'anchorscope.evidence.tables' not in sys.modules; "
        f"found = unpack(open({str(place)!r}, 'rb').read(), {{}}).run(Silent()); print(*sorted(found))"
    )
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
    assert told == sorted(evidence_tables(some_evidence(), Silent()))
