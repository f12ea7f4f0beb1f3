"""What all measurements of one benchmark share: the model, the items, the machine's peak, and who listens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anchorscope.bench.meter import Measured, measure
from anchorscope.bench.options import Options
from anchorscope.bench.workload import LEAST_OWN, Workload, real, synthetic
from anchorscope.engine.batching import block_parameters
from anchorscope.errors import UserError
from anchorscope.models.embedded import installed_path
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import BALANCED, DTYPES, checked_device, choose_device, choose_dtype, load
from anchorscope.models.sources import SHAPES, build_shape, is_shape, shape_config, shape_title
from anchorscope.models.wrapping import wrap

Say = Callable[[str], None]
"""Told what is going on, one line at a time."""
SHARED, OWN = 40, 24
"""Tokens of synthetic items, where nothing else is said."""
_TOKENIZER_OF = "smollm2-135m"  # serves all shapes


@dataclass(frozen=True)
class Setting:
    """One benchmark that is running."""

    options: Options
    lm: LanguageModel
    peak: float
    """Operations per second of large matrix products, measured here."""
    say: Say
    held: tuple[float, float]
    """MB that the process with its model holds of the host's memory and of the GPU's."""

    @property
    def block_parameters(self) -> int:
        """Parameters of all blocks."""
        return block_parameters(self.lm)

    @property
    def peak_tokens_per_s(self) -> float:
        """Tokens per second if blocks cost nothing but their multiplications, at the measured peak."""
        return self.peak / (2 * self.block_parameters)

    def workload(self, n: int, own: int | None = None) -> Workload:
        """So many items, of the kind that was chosen; `own` asks for synthetic ones of that length."""
        options, lm = self.options, self.lm
        if not options.synthetic and own is None:
            made = _real(options, lm, n)
        else:
            shared = SHARED if options.shared is None else options.shared
            length = own or options.own or OWN
            made = synthetic(n, shared, length, int(lm.config.vocab_size), options.seed, options.new_tokens)
        _refuse_windows(lm, made)
        return made

    def race(self, runs: Mapping[str, Callable[[], Any]], title: str) -> dict[str, list[Measured]]:
        """All runs in turn (A B C A B C), so that noise hits all alike."""
        taken: dict[str, list[Measured]] = {name: [] for name in runs}
        for repeat in range(self.options.repeats):
            for name, run in runs.items():
                taken[name].append(measure(run, self.lm.device))
                seconds = taken[name][-1].seconds
                self.say(f"{title}: {name}, repeat {repeat + 1} of {self.options.repeats}: {seconds:.2f} s")
        return taken


def load_model(options: Options) -> LanguageModel:
    """The model; a shape is built without a tokenizer where the embedded model, which lends its own, is not here."""
    device = choose_device(options.device)
    if device == BALANCED:
        raise UserError(f"A benchmark runs on one device, not {BALANCED}; choose cuda or cpu.")
    dtype = choose_dtype(options.dtype, device)
    if not is_shape(options.model) or dtype not in DTYPES or installed_path(_TOKENIZER_OF) is not None:
        return load(options.model, dtype, device)
    target = checked_device(device)
    config = shape_config(options.model, SHAPES[_TOKENIZER_OF].vocabulary)
    model = build_shape(config, DTYPES[dtype], target).to(target)
    return wrap(model, None, shape_title(options.model), options.model, random_weights=True)


def _real(options: Options, lm: LanguageModel, n: int) -> Workload:
    try:
        return real(n, options.dataset, lm.tokenizer, lm.needs_bos, options.seed, options.new_tokens)
    except ModuleNotFoundError as error:
        raise UserError(
            f"Real questions need the package {error.name!r}, which is not installed here; install all of anchorscope, "
            f"or run random tokens with --shared {SHARED} --own {OWN}."
        ) from error


def _refuse_windows(lm: LanguageModel, workload: Workload) -> None:
    # The other implementations are given one mask for all layers, which would erase a window.
    longest = max(item.length for item in workload.items)
    windows = [window for layer in range(lm.n_layers) if (window := lm.sliding_window(layer)) is not None]
    if windows and min(windows) < longest:
        raise UserError(
            f"Items have up to {longest} tokens, and layers of {lm.name!r} see only {min(windows)}; the ways could not "
            f"be compared. Choose shorter items (--shared and --own, at least {LEAST_OWN}) or another model."
        )
