"""Tensors between host and device: every row comes to its place bit by bit; on a CPU nothing has to be waited for."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.models.devices import copy_rows, empty_on_host

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@given(
    dtype=st.sampled_from(DTYPES),
    width=st.integers(1, 9),
    layout=st.sampled_from(["own", "turned", "every other"]),
    seed=st.integers(0, 9),
)
def test_rows_come_to_their_places_bit_by_bit(dtype: torch.dtype, width: int, layout: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = torch.from_numpy(rng.integers(0, 256, (2, 3, 4, 2 * width * dtype.itemsize), dtype=np.uint8)).view(dtype)
    rows = bits[..., :width].contiguous()
    if layout == "turned":
        rows = rows.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    elif layout == "every other":  # no row of which is one piece of memory
        rows = bits[..., ::2]
    items = rng.permutation(7)[:4]
    into = empty_on_host((2, 3, 7, width), dtype)
    into.view(torch.uint8).zero_()
    expected = into.clone()
    expected[:, :, items.tolist()] = rows
    copy_rows(into, items, rows)
    assert torch.equal(into.view(torch.uint8), expected.view(torch.uint8))
