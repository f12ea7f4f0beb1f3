"""The five written readings of the paper's layer charts, and how the report names them.

Each describes one figure of two panels, model against model, in its own words. They are kept as 000 … 004 in the
order of the numbers here: 1 = 000, 2 = 001, 3 = 002 (the Llama figure), 4 = 003, 5 = 004 (the Qwen3 figure).
"""

from collections.abc import Sequence

LLAMA, QWEN = "Llama-3.2 1B and 3B", "Qwen3 8B and 32B"
READINGS = {1: LLAMA, 2: LLAMA, 3: LLAMA, 4: QWEN, 5: QWEN}
"""What each reading looked at."""


def source_name(reading: int) -> str:
    """For example "reading 1 (Llama-3.2 1B and 3B)"."""
    return f"reading {reading} ({READINGS[reading]})"


def short_sources(readings: Sequence[int]) -> str:
    """For a table: "1, 3 (Llama), 5 (Qwen3)"; a dash for none."""
    parts = []
    for family, name in ((LLAMA, "Llama"), (QWEN, "Qwen3")):
        mine = [str(reading) for reading in readings if READINGS[reading] == family]
        if mine:
            parts.append(f"{', '.join(mine)} ({name})")
    return ", ".join(parts) or "–"
