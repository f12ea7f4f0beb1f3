"""Where things are in this repository, for tests that read its files."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
DOCS = ROOT / "docs"
SUPPORT = Path(__file__).parent
SHARED_DATA = ROOT.parent / "shared" / "data"
"""The real question sets where they are at hand, beside the checkout; tests that read them skip where they are not."""
