"""GGUF files: checked within bounds, and read by transformers in seconds.

transformers reads a GGUF file through the package `gguf`. For configuration, tokenizer and weights it parses the header
again each time, with several numpy arrays for every token; it builds the table of tensor names once for each
module; and it dequantises on one core. Inside `fast_gguf` these functions are replaced by faster ones that return the
same values. Everything else (which tensor goes where, how it is laid out, what is missing) remains transformers' own
code. `benchmarks/gguf_load.py` measures the difference.
"""

import os
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import quants
from transformers import modeling_gguf_pytorch_utils
from transformers.integrations import ggml

from anchorscope.files import open_regular
from anchorscope.progress import Progress, Silent

_MEGABYTE = 1 << 20
_VALUES_AT_ONCE = 1 << 18  # one thread's share: large enough for numpy to be quick, small enough for a core's cache
_LOCK = threading.RLock()  # `fast_gguf` changes a module that all threads share: they take turns


class _Reader(gguf.GGUFReader):  # type: ignore[misc]
    """Reads the lists of the header straight into Python values."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
        if raw_type != gguf.GGUFValueType.ARRAY:
            parts: tuple[int, list[Any], list[int], list[Any]] = super()._get_field_parts(orig_offs, raw_type)
            return parts
        data, offset = self.data.data, orig_offs + 12
        kind, count = struct.unpack_from("<IQ", data, orig_offs)
        member = gguf.GGUFValueType(kind)
        members: list[Any] = []
        if member == gguf.GGUFValueType.STRING:
            length_at = struct.Struct("<Q").unpack_from
            for _ in range(count):
                begin = offset + 8
                offset = begin + length_at(data, offset)[0]
                members.append(data[begin:offset].tobytes().decode())
        elif member in self.gguf_scalar_to_np:
            values = self._get(offset, self.gguf_scalar_to_np[member], count)
            offset += values.nbytes
            members = values.tolist()
        else:
            raise ValueError(f"a list of type {member.name}")
        return offset - orig_offs, members, list(range(len(members))), [gguf.GGUFValueType.ARRAY, member]


def check_gguf(path: Path) -> None:
    """Refuses a GGUF file that is cut off, damaged or quantised in a way that cannot be read."""
    open_regular(path).close()
    try:
        reader = gguf.GGUFReader(os.path.join(path.parent, path.name))  # the name that transformers makes of it
        for kind in {tensor.tensor_type for tensor in reader.tensors}:
            gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8), kind)
    except NotImplementedError as error:
        raise ValueError(f"{path.name} is quantised in a way that cannot be read ({error})") from error
    except Exception as error:  # whatever a broken file makes the library say
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path.name} is cut off or damaged ({type(error).__name__}: {reason})") from error


@contextmanager
def fast_gguf(title: str, progress: Progress | None = None) -> Iterator[None]:
    """While this holds, transformers reads GGUF files quickly; `progress` shows the megabytes of weights."""
    listener = progress or Silent()

    def dequantize(data: Any, kind: Any) -> Any:
        if kind == gguf.GGMLQuantizationType.F32:
            return quants.dequantize(data, kind)
        values, size = gguf.GGML_QUANT_SIZES[kind]  # of one block
        packed = np.asarray(data).reshape(-1).view(np.uint8)
        blocks, step = packed.size // size, max(1, _VALUES_AT_ONCE // values)
        found = np.empty(blocks * values, dtype=np.float32)

        def unpack(first: int) -> None:
            part = packed[first * size : (first + step) * size]
            found[first * values : (first + step) * values] = quants.dequantize(part[None], kind)[0]

        list(threads.map(unpack, range(0, blocks, step)))
        return found.reshape(*data.shape[:-1], -1)

    def reported(tensors: Any, **_: Any) -> Iterator[Any]:
        done = 0
        listener.start(f"{title} (MB)", _megabytes(sum(tensor.n_bytes for tensor in tensors)))
        for tensor in tensors:
            yield tensor
            before, done = done, done + tensor.n_bytes
            listener.advance(_megabytes(done) - _megabytes(before))
        listener.finish()

    def parse(value: Any, types: list[Any]) -> Any:
        return value if len(types) > 1 else ggml._gguf_parse_value(value, types)  # a list's members are read already

    faster = {
        (gguf, "GGUFReader"): lru_cache(maxsize=1)(_Reader),
        (gguf, "dequantize"): dequantize,
        (gguf, "get_tensor_name_map"): cache(gguf.get_tensor_name_map),
        (modeling_gguf_pytorch_utils, "_gguf_parse_value"): parse,
        (modeling_gguf_pytorch_utils, "tqdm"): reported,
    }
    with _LOCK, ThreadPoolExecutor(torch.get_num_threads()) as threads:
        before = {(module, name): getattr(module, name) for module, name in faster}
        for (module, name), function in faster.items():
            setattr(module, name, function)
        try:
            yield
        finally:
            for (module, name), function in before.items():
                setattr(module, name, function)


def _megabytes(size: int) -> int:
    return -(-size // _MEGABYTE)


def forget_quantisation(model: Any) -> None:
    """Makes of a dequantised model what its safetensors would give; transformers leaves it marked as quantised."""
    vars(model.config).pop("quantization_config", None)
    model.hf_quantizer = None
    model.config.architectures = [type(model).__name__]
    for parameter in model.parameters():  # GPT-2's are transposed views, with which products differ in the last digits
        parameter.data = parameter.data.contiguous()
