"""`python tests/golden/write.py`: shows what moved in the golden files and writes them; `--check` only shows."""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}  # as in the tests; read when libraries are imported
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import golden
from golden_runs import PIECES, golden_folder


def main(check: bool) -> int:
    numerics, moved = golden.numerics(golden_folder("supplied")), []
    recorded = golden.recorded_hashes(numerics)
    hashes = {}
    for piece in PIECES:
        new, old = golden.golden_texts(golden_folder(piece)), golden.stored_texts(piece)
        changes = golden.compare_texts(old, new, exact=recorded is not None)
        own = golden.file_hashes(piece, golden_folder(piece))
        hashes |= own
        if changes:
            moved.append(piece)
            print(golden.report_changes(changes, piece), flush=True)  # noqa: T201
        bits = [
            name
            for name in own
            if recorded is not None and recorded.get(name) != own[name]
        ]
        if bits:
            moved += [piece] * (piece not in moved)
            print(f"{piece}: bits differ in {', '.join(bits)}")  # noqa: T201
        if not check and changes:
            shutil.rmtree(golden.GOLDEN / piece, ignore_errors=True)
            (golden.GOLDEN / piece).mkdir(parents=True)
            for name, text in new.items():
                (golden.GOLDEN / piece / name).write_text(text, encoding="utf-8")
    print(f"moved: {', '.join(moved) or 'nothing'}")  # noqa: T201
    if not check:
        place = golden.GOLDEN / golden.HASHES
        others = (
            json.loads(place.read_text(encoding="utf-8"))
            if place.exists() and not moved
            else []
        )
        kept = [one for one in others if one["numerics"] != numerics]
        text = json.dumps([*kept, {"numerics": numerics, "sha256": hashes}], indent=1)
        place.write_text(text + "\n", encoding="utf-8")
    return 1 if check and moved else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
