"""Makes the helper module of all tests importable; pytest's import mode does not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
