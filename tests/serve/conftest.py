"""Makes the helper modules of this folder and of the detectors' tests importable; pytest's import mode does not."""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parent), str(_HERE.parent / "detectors")]
