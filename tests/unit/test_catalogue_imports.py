"""The catalogue brings no torch along: help texts, recipes and reports read it."""

import subprocess
import sys


def test_reading_the_catalogue_imports_no_torch() -> None:
    code = "import anchorscope.catalogue, sys; assert 'torch' not in sys.modules, 'torch came along'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
