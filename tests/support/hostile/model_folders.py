"""Models from strangers: configurations, tokenizers, chat templates, weights and GGUF files, changed field by field.

A side effect of any code in such a folder, be it Python beside the weights or a pickle, shows as a file that was not
there before.
"""

import json
import os
import pickle
import random
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.case import Case
from hostile.model_fields import NAMES, NUMBERS, SIZES, TEMPLATES
from hostile.stage import FAMILIES, GGUF, Stage
from hostile.values import JSON_VALUES, json_value, text


def make(rng: random.Random, stage: Stage, case: Case) -> None:
    """A model that somebody tampered with, and a command that opens it."""
    case.memory_mb = 1500
    place, prompt = (
        case.user / rng.choice(("model", "model", "my, model", "modèle")),
        rng.choice(("few-shot", "zero-shot")),
    )
    if rng.random() < 0.15:
        place = place.with_suffix(".gguf")
        place.write_bytes((stage.folder / GGUF).read_bytes())
        _gguf(rng, place)
    else:
        stage.copy(f"models/{rng.choice(FAMILIES)}", place)
        for _ in range(rng.choice((1, 1, 2, 4))):
            change = rng.choice(_CHANGES)
            change(rng, place, case)
            prompt = "chat" if change is _template else prompt
    case.words = ["run", "--model", str(place), "--dataset", f"file:{stage.facts}", "--prompt", prompt, "--limit", "70"]
    if rng.random() < 0.55:
        case.words.append("--dry-run")
    else:  # loading is of interest here, not the run behind it
        case.words += ["--out", "out", "--bootstrap", "100", "--folds", "2", "--random-cuts", "1"]
        case.outs, case.interrupt = ["user/out"], (15.0, signal.SIGINT)


def _config(rng: random.Random, place: Path, case: Case) -> None:
    """Fields of the configuration."""
    config = _read(place / "config.json")
    for _ in range(rng.choice((1, 1, 1, 2))):
        kind = rng.random()
        if kind < 0.35:
            there = [name for name in SIZES if name in config] or ["num_hidden_layers"]
            config[rng.choice(there if rng.random() < 0.8 else SIZES)] = rng.choice(NUMBERS)
        elif kind < 0.65:
            name = rng.choice(list(NAMES))
            config[name] = rng.choice(NAMES[name])
        elif kind < 0.85:
            config[rng.choice(list(config) or ["x"])] = json_value(rng)
        elif kind < 0.95:
            config.pop(rng.choice(list(config) or ["x"]), None)
        else:
            config[text(rng)] = json_value(rng)
    _write(place / "config.json", config)


def _any_json(rng: random.Random, place: Path, case: Case) -> None:
    """Somewhere deep inside a JSON file: another value, or none."""
    name = rng.choice(("tokenizer.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"))
    content = _read(place / name)
    inner: Any = content
    for _ in range(rng.randrange(1, 6)):
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
        if not keys:
            break
        key = rng.choice(keys)
        if not isinstance(inner[key], dict | list) or not inner[key] or rng.random() < 0.3:
            if rng.random() < 0.8:
                inner[key] = rng.choice((*NUMBERS, json_value(rng)))
            else:
                del inner[key]
            break
        inner = inner[key]
    _write(place / name, content)


def _tokenizer(rng: random.Random, place: Path, case: Case) -> None:
    """Classes, code and ids that a tokenizer names."""
    settings, tokens = _read(place / "tokenizer_config.json"), _read(place / "tokenizer.json")
    kind = rng.randrange(5)
    if kind == 0:
        settings["tokenizer_class"] = rng.choice(
            (
                "LlamaTokenizer",
                "GPT2Tokenizer",
                "Nothing",
                "BertTokenizer",
                "",
                3,
                "RagTokenizer",
                "TransfoXLTokenizer",
                "os.system",
            )
        )
    elif kind == 1:
        settings["auto_map"] = {"AutoTokenizer": ["own.Own", "other/repo--own.Own"]}
    elif kind == 2 and isinstance(tokens.get("added_tokens"), list):
        token = {
            "id": rng.choice((259, 260, 10**6, 2**31, -1)),
            "content": rng.choice(("<new>", "", "a", "\x00")),
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": rng.random() < 0.5,
        }
        tokens["added_tokens"].append(token)
    elif kind == 3:
        settings |= {rng.choice(("bos_token", "eos_token", "pad_token", "unk_token")): rng.choice(JSON_VALUES)}
    else:
        settings["model_max_length"] = rng.choice(NUMBERS)
    _write(place / "tokenizer_config.json", settings)
    _write(place / "tokenizer.json", tokens)


def _template(rng: random.Random, place: Path, case: Case) -> None:
    """A chat template, as a file or in the tokenizer's settings."""
    source = rng.choice(TEMPLATES)
    if rng.random() < 0.5:
        (place / "chat_template.jinja").write_text(source, encoding="utf-8", errors="surrogatepass")
    else:
        settings = _read(place / "tokenizer_config.json")
        settings["chat_template"] = rng.choice(
            (source, [{"name": "default", "template": source}], {"default": source}, json_value(rng))
        )
        _write(place / "tokenizer_config.json", settings)


def _bytes(rng: random.Random, place: Path, case: Case) -> None:
    """A file that is broken, empty, gone, or something else."""
    file = rng.choice(sorted(one for one in place.iterdir() if one.is_file() and not one.is_symlink()))
    content, kind = file.read_bytes(), rng.randrange(8)
    if kind == 0:
        file.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif kind == 1:
        at = rng.randrange(len(content) or 1)
        file.write_bytes(content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :])
    elif kind == 2:
        file.write_bytes(
            rng.choice(
                (
                    b"",
                    b"[]",
                    b"null",
                    b"[" * 100_000,
                    b'{"a":' * 50_000,
                    b"\xff\xfe\0",
                    b"9" * 10_000,
                    b"{}",
                    b"\0" * 1000,
                )
            )
        )
    elif kind == 3:
        file.unlink()
    elif kind == 4:
        file.unlink()
        os.mkfifo(file)
    elif kind == 5:
        file.unlink()
        file.symlink_to(rng.choice((file.name, "/dev/zero", "/dev/null", "nowhere", "..")))
    elif kind == 6:
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(content + rng.choice((b"\0", content, b"}" * 10)))


def _weights(rng: random.Random, place: Path, case: Case) -> None:
    """The header of the weights, or an index that leads elsewhere."""
    file = place / "model.safetensors"
    if not file.is_file() or file.is_symlink() or file.stat().st_size < 100:
        return
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + length], content[8 + length :]
    kind = rng.randrange(6)
    if kind == 0:
        file.write_bytes(
            struct.pack("<Q", rng.choice((0, 1, length - 1, length + 1, 10**9, 2**63, 2**64 - 1))) + content[8:]
        )
    elif kind == 1:
        try:
            facts = json.loads(header)
            one = facts[rng.choice([name for name in facts if name != "__metadata__"])]
            one[rng.choice(list(one))] = rng.choice(
                (*NUMBERS, [0, 10**15], [-1, 5], [2**63, 2**64], [10**9] * 5, "F8", "BOOL", "F64", [0] * 100)
            )
            changed = json.dumps(facts).encode()
        except (ValueError, IndexError, TypeError, AttributeError, RecursionError):
            return
        file.write_bytes(struct.pack("<Q", len(changed)) + changed + data)
    elif kind == 2:
        changed = rng.choice(
            (
                b"{",
                b"[]",
                b"[" * 99_999,
                b'{"a":' * 20_000,
                b"{}",
                header.replace(b"layers.0", b"layers.9"),
                header.replace(b'"F32"', b'"F16"'),
            )
        )
        file.write_bytes(struct.pack("<Q", len(changed)) + changed + data)
    elif kind == 3:
        whole = len(data) // 4 * 4
        file.write_bytes(
            content[: 8 + length]
            + rng.choice((b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\0\0", b"\xff\xff\x7f\x7f")) * (whole // 4)
        )
    elif kind == 4:
        names = (
            "../../neighbour/x.safetensors",
            "/etc/passwd",
            "model.safetensors",
            "none.safetensors",
            "pytorch_model.bin",
            3,
            None,
        )
        (place / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"lm_head.weight": rng.choice(names)}})
        )
        if rng.random() < 0.5:
            file.unlink()
    else:
        file.rename(
            place / rng.choice(("other.safetensors", "model-00001-of-00002.safetensors", "adapter_model.safetensors"))
        )


class _Pickled:
    """Writes a file when somebody unpickles it."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, int]]:
        return os.mkdir, (self.place, 0o777)


def _code(rng: random.Random, place: Path, case: Case) -> None:
    """Pickles and Python beside the weights, and a configuration that names them."""
    trap = str(case.user / "the trap was sprung")
    for name in ("pytorch_model.bin", "tokenizer.pkl", "vocab.pt", "model.pt"):
        (place / name).write_bytes(pickle.dumps(_Pickled(trap)))
    for name in (
        "own.py",
        "modeling_own.py",
        "configuration_own.py",
        "tokenization_own.py",
        "conftest.py",
        "custom_generate.py",
        "json.py",
    ):
        (place / name).write_text(f"import os\nos.mkdir({trap!r})\nclass Own: pass\n")
    config = _read(place / "config.json")
    config["auto_map"] = {
        "AutoConfig": "configuration_own.Own",
        "AutoModelForCausalLM": "modeling_own.Own",
        "AutoTokenizer": "own.Own",
    }
    if rng.random() < 0.5:
        config["model_type"] = "own"
    _write(place / "config.json", config)
    if rng.random() < 0.3:
        (place / "model.safetensors").unlink(missing_ok=True)
    if rng.random() < 0.3:
        _write(
            place / "adapter_config.json",
            {"base_model_name_or_path": "other/repo", "peft_type": "LORA", "auto_mapping": None},
        )


def _gguf(rng: random.Random, file: Path) -> None:
    """The header: magic, version, counts, lengths; or any byte of it."""
    content = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 1, 3))):
        kind = rng.randrange(6)
        if kind == 0:
            at = rng.choice((0, 4, 8, 16, 24))
            content[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**40, 10**18, 2**63, 2**64 - 1)))
        elif kind == 1:
            content[rng.randrange(min(len(content), 12_000))] = rng.randrange(256)
        elif kind == 2:
            content = content[: rng.randrange(len(content) + 1)] or bytearray(b"GGUF")
        elif kind == 3 and len(content) > 200:
            at = rng.randrange(24, min(len(content) - 8, 2000))
            content[at : at + 8] = struct.pack("<Q", rng.choice((2**31, 10**15, 2**63)))
        elif kind == 4:
            content = content.replace(
                rng.choice((b"llama", b"gpt2", b"F32", b"block_count")), rng.choice((b"nothing", b"", b"qwen2")), 1
            )
        else:
            content += rng.randbytes(100)
    file.write_bytes(content)


def _read(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one where an earlier change left something else."""
    try:
        found = json.loads(path.read_bytes()) if path.is_file() and not path.is_symlink() else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: Path, content: Any) -> None:
    if not os.path.lexists(path) or (path.is_file() and not path.is_symlink()):
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")


_CHANGES = (
    _config,
    _config,
    _config,
    _config,
    _any_json,
    _any_json,
    _tokenizer,
    _template,
    _template,
    _bytes,
    _bytes,
    _weights,
    _weights,
    _code,
)
