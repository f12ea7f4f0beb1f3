"""How fast a GGUF file is read, by transformers alone and as anchorscope does: python benchmarks/gguf_load.py FILE.gguf

Configuration, tokenizer and float32 weights, without imports and without the check of a loaded model. Both ways run in
one process, and their bits are compared.
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from anchorscope.models.embedded import fast_gguf
from anchorscope.models.process_settings import quiet_transformers


def read(file: Path) -> tuple[dict[str, Any], float, float]:
    """The weights, and the seconds that reading took: on the clock, and of all cores."""
    clock, cores = time.perf_counter(), time.process_time()
    config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, config=config, dtype=torch.float32
    )
    return model.state_dict(), time.perf_counter() - clock, time.process_time() - cores


def main() -> None:
    """Prints both times, their ratio, and whether the bits agree."""
    file = Path(sys.argv[1]).resolve()
    with quiet_transformers():
        with fast_gguf("read"):
            read(file)  # imports what the model needs
            ours, fast, fast_cores = read(file)
        theirs, slow, slow_cores = read(file)
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
