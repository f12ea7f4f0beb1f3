"""Hostile cases by the thousand: files, folders, models, options, damage; made from seeds, run and judged.

    python tools/hostile.py --cases 10000 --seed 1 --jobs 2
    python tools/hostile.py --replay question-files 17

The rules, the generators and the judge are in `tests/support/hostile/`. The last line sums up; the exit code is 1 if
any case failed, and every failure is told with the command that repeats it.
"""

import argparse
import gc
import os
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["POLARS_MAX_THREADS"] = "1"  # threads do not survive a fork
os.environ["TOKENIZERS_PARALLELISM"] = "false"
_SUPPORT = Path(__file__).parents[1] / "tests" / "support"
sys.path.insert(0, str(_SUPPORT))

from hostile.session import NAMES, Session, replay, run_many  # noqa: E402  # after the settings above
from hostile.stage import build, import_everything  # noqa: E402


def main() -> int:
    """The program."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--cases", type=int, help="how many, over all generators; without it, those of the test suite")
    words.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    words.add_argument("--jobs", type=int, default=1, help="processes")
    words.add_argument("--only", choices=NAMES, help="one generator")
    words.add_argument("--replay", nargs=2, metavar=("GENERATOR", "SEED"), help="one case, with all that it printed")
    words.add_argument("--keep", type=Path, metavar="FOLDER", help="where the folders of failures stay")
    words.add_argument("--stage", type=Path, help="where the models and runs of cases are kept for the next time")
    given = words.parse_args()
    import_everything()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        stage = build((given.stage or Path(folder) / "stage").resolve())
        gc.collect()
        gc.freeze()
        session = Session(stage, (given.keep or Path(folder)).resolve(), given.keep is not None)
        if given.replay:
            return replay(session, given.replay[0], int(given.replay[1]))
        return run_many(session, given.only, given.cases, given.seed, max(1, given.jobs))


if __name__ == "__main__":
    sys.exit(main())
