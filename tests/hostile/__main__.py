"""The command: `python tests/hostile`."""

import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["POLARS_MAX_THREADS"] = "1"  # threads do not survive a fork
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "datasets")]

from hostile.session import main  # noqa: E402  # after the settings above

sys.exit(main())
