"""What all tests share: tiny models built from configuration (no downloads), and settings.

Large libraries are imported where they are used: the process that hands out tests to the others reads this file too,
and rooms that need no model are tested without waiting for one.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["RAY_AUTH_TOKEN"] = "t" * 64  # Ray remembers the first one of a process: all tests of it share one
os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub library is imported, so before it: no test may use the network

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from anchorscope.models.language_model import LanguageModel

gc.disable()  # while tests are collected: nearly all that is made then stays
sys.dont_write_bytecode = False  # each process would compile all files anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("anchorscope", deadline=None, max_examples=40)  # shared machines are slow at times
settings.register_profile("quick", deadline=None, max_examples=10)
settings.load_profile("anchorscope")

SIZES = {
    "vocab_size": 260, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "bos_token_id": 256, "eos_token_id": 257,
    "pad_token_id": 258,
}  # fmt: skip
TINY: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {
        "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "decoder_sparse_step": 1,
    },
    "phi3": {"sliding_window": 8},
    "gemma2": {
        "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text": {
        "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma": {"head_dim": 16, "tie_word_embeddings": False},
    "olmo2": {},
    "olmo3": {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "gpt_neox": {},
    "gpt2": {"n_inner": 48, "tie_word_embeddings": False},
}  # fmt: skip
"""What each architecture's tiny model has beside `SIZES`; sliding windows are shorter than the tests' sequences, and
soft caps low enough to bend the scores."""

REPRESENTATIVES = ("gemma2", "gpt2", "gpt_neox", "olmo3", "qwen3_moe")
"""The architectures that stand for all in laws of rows, masks, variants and batches.

What a family changes is a block: its norms, its projections, its scores. What these laws are about is the engine around
it, which asks a family only for what is listed here, and between them the five have all of it: soft caps and heads of
their own width (Gemma 2); a learned embedding of positions, no rotary one, ungrouped heads (GPT-2); both parts of a
block reading the same stream (GPT-NeoX); two rotary embeddings by the kind of layer, and norms only after a part
(OLMo 3); experts that divide the tokens of a batch among them (Qwen 3 MoE). Heads that share keys, sliding windows, and
layers that slide in turn with layers that do not are in several. `models/test_representatives.py` compares this with
the table of families.

Laws about a family itself (the same numbers as transformers', the proof at loading, decoding) are marked `every_family`
and run over all of `TINY`."""

LONGEST = (
    "test_embedded_run", "test_ray_faults", "test_docs", "test_pipeline", "test_hostile", "test_experiment_runs",
    "test_validate", "test_executors", "test_partition", "test_accessibility", "test_ray_run", "test_process_faults",
    "test_damage", "test_keys", "test_kill", "test_detect", "test_out_of_memory", "test_study_runs", "test_serve_page",
)  # fmt: skip
"""Files of some twenty seconds and more: begun first, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first; all else stays in order."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


WHOLE = re.compile(
    r"\b(ProcessPool|RayPool)"
    r"|\b(subprocess|CliRunner|run_recipe|open_page|parallel|small_recipe|whole_runs|compared_runs|measure_growth|compiled_|run_worlds)"
    r"|\.plot\(|write_validation|def written|\(written|anchorscope\.bench|ExperimentInputs|make_inputs"
)
"""What the files of slow tests say: they start programs, commands, whole runs or a browser, or draw figures."""


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "only files without whole runs or figures, one family, few examples of a property (make check)"
    parser.addoption("--quick", action="store_true", help=about)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        settings.load_profile("quick")


def pytest_collection_finish() -> None:
    """What was made by then, some million objects, is never looked through again: half a second each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before a test and all that it is given: the same kernels, whatever ran before it in this process.

    A product in bfloat16 on a processor that has none switches a library off, and later sums differ in the last digit.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.backends.mkldnn.set_flags(True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick tier does not even import files with whole runs."""
    if config.getoption("quick") and collection_path.name.startswith("test_"):
        return bool(WHOLE.search(collection_path.read_text(encoding="utf-8"))) or None
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A law over `tiny` runs on the representatives, or where it is marked `every_family` on every family.

    A test that names the families itself (`parametrize("tiny", …, indirect=True)`) runs on those.
    """
    named = any("tiny" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "tiny" in metafunc.fixturenames and not named:
        every = any(metafunc.definition.iter_markers("every_family"))
        kinds = sorted(TINY) if every else REPRESENTATIVES
        metafunc.parametrize(
            "tiny", REPRESENTATIVES[:1] if metafunc.config.getoption("quick") else kinds, indirect=True, scope="session"
        )


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """A run brings some 200 files to the disk, one after another; here no power is cut.

    The call stays, for those who count calls, and fails for a file that is not open. Programs that tests start wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


def tiny_model(kind: str, **changes: Any) -> PreTrainedModel:
    """A tiny random model of an architecture, the same at every call."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SIZES, **TINY[kind], **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)  # initial weights are so small that attention would hardly look at anything
    return model


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per byte: every text is possible, no training needed."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>"])
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **names)


def build_tiny(family: str) -> LanguageModel:
    """A tiny random model with its tokenizer."""
    from anchorscope.models.wrapping import wrap

    return wrap(tiny_model(family), byte_tokenizer(), name=f"tiny {family}")


@pytest.fixture(scope="session")
def tiny(request: pytest.FixtureRequest) -> LanguageModel:
    """The representatives in turn, or every family where a test is marked `every_family`; read only."""
    return build_tiny(request.param)


@pytest.fixture(scope="session")
def tiny_llama() -> LanguageModel:
    """One tiny model; read only."""
    return build_tiny("llama")


@pytest.fixture(scope="session")
def save_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a tiny model and its tokenizer, as a user would have it."""

    def save(family: str) -> Path:
        folder = tmp_path_factory.mktemp("models") / f"tiny-{family}"
        lm = build_tiny(family)
        lm.model.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
        return folder

    return save
