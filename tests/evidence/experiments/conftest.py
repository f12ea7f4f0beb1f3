"""Makes the helper modules of this folder importable; pytest's import mode does not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
