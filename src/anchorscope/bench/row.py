"""One line of the result: one work, done in one way."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from anchorscope.bench.meter import Measured


@dataclass(frozen=True)
class Row:
    """What was measured; what a way could not do is None and has a note."""

    work: str
    way: str
    unit: str = "items"
    """What is counted: `items`, `fits` or `questions`."""
    items: int | None = None
    """How many of them one repeat ran."""
    seconds: float | None = None
    """Of one repeat, the median."""
    seconds_min: float | None = None
    seconds_max: float | None = None
    items_per_s: float | None = None
    tokens_per_s: float | None = None
    """Tokens through all blocks, without padding; one that runs through half of the blocks counts half."""
    speedup: float | None = None
    """The rate of `anchorscope` over this way's."""
    max_difference: float | None = None
    """What `difference_is` says."""
    relative_difference: float | None = None
    """The largest difference over the largest value."""
    difference_is: str | None = None
    """What the two differences compare."""
    auc_difference: float | None = None
    """Probes only: the largest difference of an AUC on held-out items."""
    peak_memory_mb: float | None = None
    """Of the device that computes, weights included; what other ways hold is not counted."""
    host_peak_mb: float | None = None
    device_peak_mb: float | None = None
    added_memory_mb: float | None = None
    """What the work took beyond the process with its model."""
    share_of_peak: float | None = None
    """2 × parameters of the blocks × tokens run ÷ seconds ÷ the measured matrix-multiply peak."""
    streaming_items_per_s: float | None = None
    """Ours only: the knockout as a run does it, every state through the probes, only log-odds fetched."""
    streaming_share_of_peak: float | None = None
    setting: str | None = None
    """What the way chose before it was measured."""
    note: str | None = None
    """Why something is missing."""

    def record(self) -> dict[str, Any]:
        """As the JSON object shows it."""
        return asdict(self)

    def timed(
        self,
        items: int,
        taken: Sequence[Measured],
        held: tuple[float, float],
        tokens: float | None = None,
        peak_tokens_per_s: float | None = None,
    ) -> "Row":
        """The same row with what its repeats took; `held` is what the process with its model holds of both memories."""
        seconds = median(one.seconds for one in taken)
        host = max(one.host_added_mb for one in taken)
        on_gpu = [one.device_added_mb for one in taken if one.device_added_mb is not None]
        device = max(on_gpu) if on_gpu else None
        return replace(
            self,
            items=items,
            seconds=seconds,
            seconds_min=min(one.seconds for one in taken),
            seconds_max=max(one.seconds for one in taken),
            items_per_s=items / seconds,
            tokens_per_s=None if tokens is None else tokens / seconds,
            peak_memory_mb=held[0] + host if device is None else held[1] + device,
            host_peak_mb=held[0] + host,
            device_peak_mb=None if device is None else held[1] + device,
            added_memory_mb=host if device is None else device,
            share_of_peak=None if tokens is None or peak_tokens_per_s is None else tokens / seconds / peak_tokens_per_s,
        )


def with_speedups(rows: Sequence[Row]) -> list[Row]:
    """The rows with our rate over each one's, within one work."""
    ours = {row.work: row.items_per_s for row in rows if row.way == "anchorscope" and row.items_per_s is not None}
    return [
        replace(row, speedup=None if row.items_per_s is None or ours.get(row.work) is None
                else ours[row.work] / row.items_per_s)  # type: ignore[operator]
        for row in rows
    ]  # fmt: skip
