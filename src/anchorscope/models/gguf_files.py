"""GGUF files: what they say about a model, and their tensors as weights under the model's own names.

`gguf` reads the table of tensors, unpacks them and knows what llama.cpp calls a model's parameters; families know what
llama.cpp changes in the numbers; transformers makes configuration and tokenizer. All numbers are those that
transformers alone reads, in a fraction of its time.
"""

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGUFValueType
from torch import Tensor

from anchorscope.errors import UserError
from anchorscope.files import open_regular
from anchorscope.models.families import GgufLayout, all_families
from anchorscope.models.process_settings import workers_of_one_thread
from anchorscope.progress import Progress

LAYERS = 1_000
"""The most layers of a model: millions would keep a loop busy before any other check."""
_VALUES_AT_ONCE = 1 << 18
"""One thread's share: large enough for numpy to be quick, small enough for a core's cache."""
_OUTPUT = "output.weight"
_SUFFIXES = (".weight", ".bias")
_ROTARY = ("rope_freqs.", "rope_factors_")
"""Tensors that are left out, as by transformers."""
_EXPERTS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
"""What a mixture of experts keeps in one parameter, and llama.cpp in tensors of these names."""


class GgufFile(gguf.GGUFReader):  # type: ignore[misc]
    """A reader that takes lists in one piece and leaves out texts: to `gguf`, each word of a vocabulary is an array."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(path)

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[Any], list[int], list[Any]]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, count = struct.unpack_from("<IQ", self.data, orig_offs)
        end = orig_offs + 12
        parts = []
        if kind == GGUFValueType.STRING:
            for _ in range(count):
                end += 8 + struct.unpack_from("<Q", self.data, end)[0]
        else:
            parts.append(self._get(end, self.gguf_scalar_to_np[kind], count))
            end += parts[0].nbytes
        types = [GGUFValueType.ARRAY, GGUFValueType(kind)]
        return end - orig_offs, parts, list(range(len(parts))), types

    def layout(self) -> GgufLayout:
        """What llama.cpp changes in models of this architecture."""
        families = all_families()
        layouts = {
            each.architecture: each for family in families for each in family.gguf
        }
        found = self.fields["general.architecture"].contents()
        if found not in layouts:
            raise UserError(
                f"GGUF file {self.path.name!r} cannot be read: its architecture is {found[:100]!r}; allowed: "
                f"{', '.join(sorted(layouts))}. Take the model's folder with safetensors instead."
            )
        return layouts[found]


def read_header(path: Path) -> GgufFile:
    """Facts and tensors; a file that is cut off, damaged or cannot be unpacked is a ValueError of one line."""
    open_regular(path).close()
    try:
        file = GgufFile(path)
        for kind in {tensor.tensor_type for tensor in file.tensors}:
            gguf.dequantize(np.zeros(gguf.GGML_QUANT_SIZES[kind][1], np.uint8), kind)
    except Exception as error:  # whatever a broken file makes the library say
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path.name} is cut off, damaged or packed in a way that is not known ({type(error).__name__}: {reason})"
        ) from error
    return file


def read_config(file: GgufFile) -> Any:
    """As transformers reads it, from a copy of the facts without the vocabulary."""
    from transformers import AutoConfig

    architecture = file.layout().architecture
    layers = file.fields[f"{architecture}.block_count"].contents()
    if not 1 <= layers <= LAYERS:
        raise ValueError(f"it has {layers} layers; allowed: 1 to {LAYERS:,}")
    tensors = {tensor.name: tensor for tensor in file.tensors}
    with TemporaryDirectory() as folder:
        path = Path(folder, "facts.gguf")
        writer = gguf.GGUFWriter(path, architecture)
        for name, field in file.fields.items():
            value = field.contents()
            of_words = isinstance(value, list) and name.startswith("tokenizer.")
            own = name.startswith(("GGUF.", "general.a"))  # architecture, alignment
            if value != [] and not of_words and not own:
                writer.add_key_value(name, value, *field.types)
        if _OUTPUT in tensors:  # else input and output share their embedding
            writer.add_tensor(_OUTPUT, np.zeros(1, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        vocabulary = int(tensors["token_embd.weight"].shape[1])
        config = AutoConfig.from_pretrained(
            folder, gguf_file=path.name, vocab_size=vocabulary
        )
    config.name_or_path = str(file.path.parent)
    return config


def read_tokenizer(file: GgufFile, config: Any) -> Any:
    """As AutoTokenizer reads it, which would make the configuration from the whole vocabulary first."""
    from transformers import TOKENIZER_MAPPING, PreTrainedTokenizerFast

    kind = TOKENIZER_MAPPING.get(type(config), PreTrainedTokenizerFast)
    return kind.from_pretrained(
        file.path.parent, gguf_file=file.path.name, local_files_only=True
    )


def read_model(
    file: GgufFile, config: Any, dtype: torch.dtype, progress: Progress, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """As transformers' `from_pretrained`: the model, and what it lacks; a tensor without a place is a ValueError."""
    from transformers import AutoModelForCausalLM

    layout = file.layout()
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    known = gguf.get_tensor_name_map(
        kinds[layout.architecture], config.num_hidden_layers
    )
    tensors = {tensor.name: tensor for tensor in file.tensors}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    progress.start(f"read {file.path.name}", len(tensors))
    weights = {}
    with workers_of_one_thread(torch.get_num_threads()) as threads:
        for parameter, _ in model.named_parameters():
            stem, _, last = parameter.rpartition(".")
            names = [
                known.get_name(f"{stem}.{part}", _SUFFIXES)
                for part in _EXPERTS.get(last, (last,))
            ]
            if last in _EXPERTS:
                names = [f"{name}.weight" for name in names]
            if not tensors.keys() >= set(names):
                continue  # transformers reports what is missing
            parts = [
                _unpack(tensors.pop(name), layout, dtype, threads) for name in names
            ]
            whole = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
            weights[parameter] = _rearrange(whole, names[0], layout, config)
            progress.advance(len(names))
    left = [name for name in tensors if not name.startswith(_ROTARY)]
    if left:
        raise ValueError(f"it has no place for {left[0]} ({len(left)} in all)")
    progress.finish()
    return type(model).from_pretrained(
        None,
        config=config,
        state_dict=weights,
        dtype=dtype,
        ignore_mismatched_sizes=True,  # they are reported
        output_loading_info=True,
        **options,
    )


def _unpack(
    tensor: gguf.ReaderTensor,
    layout: GgufLayout,
    dtype: torch.dtype,
    threads: ThreadPoolExecutor,
) -> Tensor:
    values, size = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
    packed = tensor.data.reshape(-1).view(np.uint8)
    step = max(1, _VALUES_AT_ONCE // values)
    is_norm = tensor.name.endswith("norm.weight")
    added = 1.0 if layout.norms_plus_one and is_norm else 0.0
    numbers = torch.empty(tensor.shape.tolist()[::-1], dtype=dtype)
    flat = numbers.view(-1)

    def unpack(first: int) -> None:
        blocks = packed[first * size : (first + step) * size]
        some = gguf.dequantize(blocks, tensor.tensor_type) - added
        flat[first * values : (first + step) * values] = torch.from_numpy(some)

    list(threads.map(unpack, range(0, packed.size // size, step)))
    return numbers


def _rearrange(numbers: Tensor, name: str, layout: GgufLayout, config: Any) -> Tensor:
    """Undoes what llama.cpp does to the order of the numbers."""
    if layout.transposed and name.startswith("blk.") and numbers.dim() == 2:
        return numbers.T.contiguous()
    for part, heads in layout.woven:
        if f".{part}." in name:
            pairs = numbers.view(getattr(config, heads), -1, 2, *numbers.shape[1:])
            return pairs.transpose(1, 2).reshape(numbers.shape)
    return numbers
