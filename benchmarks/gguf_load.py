"""How fast a GGUF file is read, by transformers alone and as anchorscope does: python benchmarks/gguf_load.py FILE.gguf

Configuration, tokenizer and float32 weights, without imports and without the check of a loaded model. Both ways run in
one process, and their bits are compared.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from anchorscope.models import gguf_files
from anchorscope.models.process_settings import quiet_transformers
from anchorscope.progress import Silent


def by_transformers(file: Path) -> dict[str, Any]:
    names = {"gguf_file": file.name}
    config = AutoConfig.from_pretrained(file.parent, **names)
    AutoTokenizer.from_pretrained(file.parent, **names)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, config=config, dtype=torch.float32, **names
    )
    return model.state_dict()


def by_anchorscope(file: Path) -> dict[str, Any]:
    header = gguf_files.read_header(file)
    config = gguf_files.read_config(header)
    gguf_files.read_tokenizer(header, config)
    model, _ = gguf_files.read_model(header, config, torch.float32, Silent())
    return model.state_dict()


def timed(
    read: Callable[[Path], dict[str, Any]], file: Path
) -> tuple[dict[str, Any], float, float]:
    """The weights, and the seconds that reading took: on the clock, and of all cores."""
    clock = time.perf_counter()
    cores = time.process_time()
    weights = read(file)
    return weights, time.perf_counter() - clock, time.process_time() - cores


def main() -> None:
    """Prints both times, their ratio, and whether the bits agree."""
    file = Path(sys.argv[1]).resolve()
    with quiet_transformers():
        by_anchorscope(file)  # imports what the model needs
        ours, fast, fast_cores = timed(by_anchorscope, file)
        theirs, slow, slow_cores = timed(by_transformers, file)
    same = all(
        torch.equal(ours[name].view(torch.int32), theirs[name].view(torch.int32))
        for name in theirs
    )
    sys.stdout.write(
        f"{file.name}: {file.stat().st_size / 1e6:.0f} MB, {torch.get_num_threads()} threads\n"
        f"transformers alone: {slow:.1f} s, {slow_cores:.1f} s of all cores\n"
        f"anchorscope: {fast:.1f} s, {fast_cores:.1f} s of all cores, {slow_cores / fast_cores:.1f} times less\n"
        f"bits: {'the same' if same else 'NOT the same'}\n"
    )


if __name__ == "__main__":
    main()
