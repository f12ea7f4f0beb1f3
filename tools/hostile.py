"""Hostile cases by the thousand: folders, models, options; made from seeds, run and judged.

    python tools/hostile.py --cases 10000 --seed 1
    python tools/hostile.py --replay model-folders 17

The rules, the generators and the judge are in `tests/support/hostile.py`. The last line sums up; the exit code is 1 if
any case failed, and every failure comes with the command that repeats it.
"""

import argparse
import gc
import os
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["POLARS_MAX_THREADS"] = (
    "1"  # threads do not survive a fork
)
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from hostile import build_stage, replay, run_many  # after the settings above


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases",
        type=int,
        help="how many, over all generators; without it, those of the test suite",
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    parser.add_argument(
        "--replay",
        nargs=2,
        metavar=("GENERATOR", "SEED"),
        help="one case, with all that it printed",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        stage, cases = (
            build_stage(Path(folder).resolve() / "stage"),
            Path(folder).resolve() / "cases",
        )
        cases.mkdir()
        gc.collect()
        gc.freeze()
        if given.replay:
            return replay(stage, cases, given.replay[0], int(given.replay[1]))
        return run_many(stage, cases, given.cases, given.seed)


if __name__ == "__main__":
    sys.exit(main())
