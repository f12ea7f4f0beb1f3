"""From bundles to a service that can be started: read, compared, bounded. Every mistake is told before it listens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anchorscope.detectors.bundle import JSON, read_bundle
from anchorscope.detectors.detector import model_for
from anchorscope.detectors.features import refuse_unknown
from anchorscope.detectors.trained import TrainedDetector
from anchorscope.errors import UserError
from anchorscope.models.loading import DTYPES, checked_device, choose_device
from anchorscope.serve.keys import Keys, is_loopback, read_keys, refuse_open_door
from anchorscope.serve.limits import Limits
from anchorscope.serve.log import ServiceLog
from anchorscope.serve.service import Service, Setting, by_id

DEMO = Path(__file__).parent / "demo_detector"
"""The detector that comes with the package, of the embedded model."""


@dataclass(frozen=True)
class ServeOptions:
    """What can be asked for beside the bundles."""

    model: str | None = None
    """Another source of the same model."""
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    """Cores for the model; None: one on the CPU, torch's own choice elsewhere."""
    host: str = "127.0.0.1"
    keys_file: Path | None = None
    limits: Limits = field(default_factory=Limits)
    log_file: Path | None = None
    log_text: bool = False
    quiet: bool = False


def make_service(bundles: Sequence[Path], options: ServeOptions) -> Service:
    """The service of some bundles; its model is loaded when it is started."""
    keys = Keys() if options.keys_file is None else read_keys(options.keys_file)
    refuse_open_door(options.host, keys)
    detectors = by_id([_checked(one) for one in bundles])
    if options.dtype != "auto" and options.dtype not in DTYPES:
        raise UserError(f"Unknown dtype {options.dtype!r}; allowed: auto, {', '.join(DTYPES)}.")
    device = choose_device(options.device)
    checked_device(device)
    cores = options.threads if options.threads is not None else 1 if device == "cpu" else None
    setting = Setting(options.limits, keys, not is_loopback(options.host), cores)
    log = ServiceLog(options.log_file, quiet=options.quiet, with_text=options.log_text)
    first = next(iter(detectors.values()))
    return Service(detectors, lambda: model_for(first, options.model, None, device, options.dtype), setting, log)


def _checked(bundle: Path) -> TrainedDetector:
    trained = read_bundle(bundle)
    refuse_unknown(trained.needs, trained.setting.n_layers)
    return trained


def demo_bundle() -> Path:
    """The bundle of `--demo`."""
    if not (DEMO / JSON).is_file():
        raise UserError(
            "This installation has no demo detector; make one (anchorscope run --keep detection --out runs/demo, then "
            "anchorscope detect runs/demo) and give its bundle: anchorscope serve BUNDLE"
        )
    return DEMO
