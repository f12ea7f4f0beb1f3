"""Scores from states that vLLM has written: the model runs there once, and nothing is run here.

python -m anchorscope.adapters.vllm --detector BUNDLE --model FOLDER --layers 15 /dev/shm/states > scores.jsonl

vLLM (`extract_hidden_states` with ExampleHiddenStatesConnector) writes a safetensors file per request: `hidden_states`
[token, layer, width] and `token_ids` [token]. Its layer i is the stream that enters block i, so what a detector reads
at `residual` of layer l is vLLM's l + 1. The tokens have to be the detector's own prompt with an answer behind it.
Written after vLLM's documentation and its source; not run beside vLLM itself.
"""

import argparse
import fcntl
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from anchorscope.answers.generate import given_answers
from anchorscope.answers.template import build_prompts, decode_exactly
from anchorscope.datasets.formats import first_line
from anchorscope.datasets.question import Question
from anchorscope.detectors.bundle import read_bundle
from anchorscope.detectors.features import ANSWER_TOKENS, CLEAN, Features
from anchorscope.detectors.trained import Score, TrainedDetector, decide, threshold_notes
from anchorscope.errors import UserError
from anchorscope.items import POSITIONS
from anchorscope.models.language_model import tokenizer_fingerprint
from anchorscope.spans.locate import locate
from anchorscope.spans.question_spans import locate_question_words

SITE = "residual"
"""The only site that vLLM shows."""
_MOST_TOKENS = 1_000_000


class StateScorer:
    """A detector of clean residual states, and a tokenizer; no model."""

    def __init__(
        self, trained: TrainedDetector, tokenizer: Any, layers: Sequence[int], risk: float | None = None
    ) -> None:
        """`layers` are vLLM's layer ids, in the requested order."""
        wrong = [key for key in trained.needs.states if key[:2] != (CLEAN, SITE)]
        columns = [name for name in trained.needs.columns if name != ANSWER_TOKENS]
        if wrong or columns:
            unseen = f"{wrong[0][0]} states at {wrong[0][1]}" if wrong else columns[0]
            raise UserError(
                f"Detector {trained.name!r} reads {unseen}, and vLLM shows only the residual stream of its own run; "
                f"train one there: anchorscope run --site residual --keep states --out RUN, then anchorscope detect "
                f"RUN --fit-only --bundles probe --out FOLDER."
            )
        missing = sorted({layer + 1 for _, _, layer in trained.needs.states} - set(layers))
        if missing:
            raise UserError(
                f"Detector {trained.name!r} needs vLLM's layers {missing}, and --layers has {[*layers]}; ask vLLM for "
                f"them (eagle_aux_hidden_state_layer_ids)."
            )
        if tokenizer_fingerprint(tokenizer) != trained.setting.tokenizer:
            raise UserError(
                f"The tokenizer is not that of {trained.setting.model!r}, which detector {trained.name!r} was trained "
                f"on; name that model with --model."
            )
        self.trained, self.tokenizer, self.layers, self.risk = trained, tokenizer, tuple(layers), risk
        self._threshold, self._notes = trained.threshold(risk), tuple(threshold_notes(trained, risk))

    def score(self, path: Path) -> Score:
        with _whole(path) as file:
            ids, states = _ids(file, path), file.get_slice("hidden_states")
            shape = list(states.get_shape())
            if shape != [len(ids), len(self.layers), self.trained.setting.d_model]:
                raise UserError(
                    f"{path} has states of the shape {shape}; {len(ids)} tokens, {len(self.layers)} layers of width "
                    f"{self.trained.setting.d_model} are wanted. Check --layers and the model."
                )
            question, answer, n_answer, position = self._read_at(ids, path)
            state = states[position]
        read = {key: state[self.layers.index(key[2] + 1)][None].float() for key in self.trained.needs.states}
        if not all(bool(values.isfinite().all()) for values in read.values()):
            raise UserError(f"The states of {path} hold NaN or infinity; run vLLM in another precision.")
        columns = {name: np.array([float(n_answer)]) for name in self.trained.needs.columns}
        decided = decide(self.trained, Features(1, read, columns))
        made = str(state.dtype).removeprefix("torch.")
        wanted = self.trained.setting.dtype
        notes = () if made == wanted else (f"dtype differs: trained in {wanted}, states in {made}",)
        return Score(
            question,
            answer,
            float(decided.probability[0]),
            float(decided.log_odds[0]),
            decided.verdicts(self._threshold)[0],
            (*notes, *self._notes),
        )

    def _before_the_end(self, rest: str) -> str:
        """The tokens before the first special one."""
        added = self.tokenizer.added_tokens_decoder.values()
        special = {*self.tokenizer.all_special_tokens, *(str(token) for token in added if token.special)}
        return min((rest.partition(token)[0] for token in special if token), key=len, default=rest)

    def _read_at(self, ids: list[int], path: Path) -> tuple[str, str, int, int]:
        """Question and answer of a request, the answer's tokens, and the token that the detector reads."""
        setting = self.trained.setting
        text = decode_exactly(self.tokenizer, ids)
        asked, _, rest = text.partition(setting.template.head)[2].partition(setting.template.tail)
        answer = first_line(self._before_the_end(rest))
        if asked.strip() and answer:
            question = Question("vllm", path.stem, " ".join(asked.split()), ())
            (prompt,) = build_prompts(self.tokenizer, [question], setting.template)
            (given,) = given_answers(self.tokenizer, setting.template, [prompt], [answer])
            located = locate(self.tokenizer, question, locate_question_words(question), prompt, given)
            if tuple(ids[: len(located.input_ids)]) == located.input_ids:
                return asked, answer, len(given.ids), located.positions[POSITIONS.index(setting.position)]
        raise UserError(
            f"The tokens of {path} are not the detector's {setting.template.kind} prompt and an answer; send that "
            f"prompt, and the answer with it or include_output_tokens."
        )


@contextmanager
def _whole(path: Path) -> Iterator[Any]:
    """The file, once vLLM has released its lock."""
    lock = path.with_name(path.name + ".lock")
    try:
        if not path.is_file() and not lock.is_file():
            raise UserError(f"There is no file {path}; give files that vLLM has written, or their folder.")
        if lock.is_file():
            with lock.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_SH)
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} cannot be read as states that vLLM wrote ({reason}); write it again.") from None


def _ids(file: Any, path: Path) -> list[int]:
    if not {"hidden_states", "token_ids"} <= set(file.keys()):
        raise UserError(f"{path} holds {sorted(file.keys())[:5]}; vLLM's files hold hidden_states and token_ids.")
    shape = list(file.get_slice("token_ids").get_shape())
    if len(shape) != 1 or not 0 < shape[0] <= _MOST_TOKENS:
        raise UserError(f"{path} has token_ids of the shape {shape}; a list of tokens is wanted.")
    ids = file.get_tensor("token_ids")
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise UserError(f"{path} has token_ids of the type {ids.dtype}; whole numbers are wanted.")
    return [int(token) for token in ids]


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files, and those of the folders, oldest first."""
    files: list[Path] = []
    for path in paths:
        inside = path.glob("*.safetensors") if path.is_dir() else [path]
        files += sorted(inside, key=lambda file: (file.stat().st_mtime_ns if file.exists() else 0, file.name))
    return files


def main(arguments: Sequence[str] | None = None) -> int:
    """A JSON line per request on standard output; files that can't be scored are reported and counted."""
    from transformers import AutoTokenizer

    parser = argparse.ArgumentParser(prog="python -m anchorscope.adapters.vllm", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    parser.add_argument("--detector", required=True, help="the bundle: a folder, or hub:USER/NAME")
    parser.add_argument("--model", help="where the model's tokenizer is, if not where it was in training")
    parser.add_argument("--layers", required=True, help="vLLM's layer ids, in its order: 15 or 14,15")
    parser.add_argument("--risk", type=float, help="share of wrong answers among accepted ones")
    given = parser.parse_args(arguments)
    failed = 0
    try:
        if not all(part.strip().isdigit() for part in given.layers.split(",")):
            raise UserError(f"--layers {given.layers!r} is no list of numbers; write them like 14,15.")
        trained = read_bundle(given.detector)
        try:
            tokenizer = AutoTokenizer.from_pretrained(given.model or trained.setting.source)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"No tokenizer could be loaded ({reason}); name the model's folder with --model.") from None
        scorer = StateScorer(trained, tokenizer, [int(part) for part in given.layers.split(",")], given.risk)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for path in files_of(given.paths):
        try:
            record = {"file": path.name, **scorer.score(path).record(), "sha256": trained.sha256}
        except UserError as error:
            failed += 1
            sys.stderr.write(f"error: {error}\n")
            continue
        sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
