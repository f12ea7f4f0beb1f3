"""Which items run together: sorted by length, as many as a token budget allows, so that little is padding."""

from collections.abc import Sequence


def plan_batches(lengths: Sequence[int], batch_tokens: int, order: Sequence[int] | None = None) -> list[list[int]]:
    """Indices of each batch; the longest item times the number of items stays within `batch_tokens`.

    Longest first, so that memory that does not suffice is noticed at once. `order` breaks ties between equal lengths;
    without it they keep their place.
    """
    ties = range(len(lengths)) if order is None else order
    by_length = sorted(ties, key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in by_length:
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def padding_share(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Share of the computed tokens that are padding."""
    run = sum(max(lengths[index] for index in batch) * len(batch) for batch in batches)
    return 1.0 - sum(lengths) / run if run else 0.0
