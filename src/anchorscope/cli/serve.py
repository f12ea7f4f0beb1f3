"""`anchorscope serve`: detectors behind an API, with a page to try them."""

import importlib.util
import os
import sys
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.catalogue import MOST_BATCH_TOKENS
from anchorscope.cli.help import AsJson, Quiet, in_panel, output, running
from anchorscope.cli.inspect import has_screen
from anchorscope.cli.terminal import emit_json, loading, user_errors
from anchorscope.detectors.bundle_files import bundle_files, checked_record
from anchorscope.errors import UserError
from anchorscope.screen import say

if TYPE_CHECKING:
    from anchorscope.serve.service import Service

EXAMPLES = {
    "serve": (
        ("a detector on this machine", "anchorscope serve runs/demo/detectors/bundles/auto"),
        ("for other machines: keys are a must", "anchorscope serve BUNDLE --host 0.0.0.0 --keys-file keys.txt"),
    )
}
NEEDED = ("fastapi", "uvicorn", "prometheus_client")
"""What the extra `serve` brings."""
_what, _door, _limits = in_panel("Detectors and model"), in_panel("Who may ask"), in_panel("Limits")


def serve(
    bundles: Annotated[
        list[Path] | None,
        typer.Argument(metavar="BUNDLE", help="Folders that anchorscope detect has written, all of one model."),
    ] = None,
    demo: Annotated[bool, _what("--demo", help="The embedded model and the detector that comes along.")] = False,
    model: Annotated[str | None, _what(help="Where the detectors' model is, if not where it was in training.")] = None,
    device: Annotated[str, running(help="auto, cpu, cuda, cuda:N or balanced.")] = "auto",
    dtype: Annotated[str, running(help="Precision of the model; auto is that of the training.")] = "auto",
    threads: Annotated[
        int | None, running(min=1, max=1024, help="Cores for the model; 1 on the CPU by default.")
    ] = None,
    host: Annotated[str, _door(help="The address to listen on; any but this machine's own needs keys.")] = "127.0.0.1",
    port: Annotated[int, _door(min=0, max=65535, help="The port; 0 takes a free one.")] = 8642,
    keys_file: Annotated[
        Path | None, _door(metavar="FILE", help="Keys, one a line: requests need one (Authorization: Bearer KEY).")
    ] = None,
    max_answer_tokens: Annotated[int, _limits(min=1, help="Tokens that the model writes for a request.")] = 512,
    queue_seconds: Annotated[
        float, _limits(min=0.1, help="Seconds that a request waits for its turn before it is refused (429).")
    ] = 3.0,
    batch_tokens: Annotated[
        int | None, _limits(min=1, max=MOST_BATCH_TOKENS, help="Tokens run together; found where not given.")
    ] = None,
    deadline: Annotated[float, _limits(min=0.1, help="Seconds until an answer has to be there.")] = 60.0,
    open_browser: Annotated[bool, output("--open", help="Open the page in the browser once it is ready.")] = False,
    log_file: Annotated[
        Path | None, output(metavar="FILE", help="One line per request goes there, not to the terminal.")
    ] = None,
    log_text: Annotated[bool, output("--log-text", help="The log may hold what users wrote.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f'anchorscope serve needs {missing[0]}; install it with: pip install "anchorscope[serve]"')
    if bool(bundles) == demo:
        raise UserError("Give the bundles to serve, or --demo for the one that comes along: one of the two.")

    for bundle in bundles or ():
        checked_record(bundle_files(bundle), str(bundle))
    with loading("torch", quiet or as_json):
        from anchorscope.serve.guard import Keys, is_loopback, read_keys, refuse_no_keys
        from anchorscope.serve.monitoring import ServiceLog
        from anchorscope.serve.server import ServiceServer, address_of, listen, run_server
        from anchorscope.serve.service import DEMO, Limits, make_service

    limits = Limits(
        answer_tokens=max_answer_tokens, queue_seconds=queue_seconds, batch_tokens=batch_tokens, deadline=deadline
    )
    with user_errors(stopped="stopped"):
        keys = Keys() if keys_file is None else read_keys(keys_file)
        refuse_no_keys(host, keys)
        log = ServiceLog(log_file, quiet=quiet, with_text=log_text)
        folders = [DEMO] if demo else bundles or []
        service = make_service(folders, limits, log, model=model, device=device, dtype=dtype, cores=threads)
        with listen(host, port) as bound:
            address = address_of(bound)
            say(f"loading {service.model}; {address} answers when it is ready", quiet or as_json)
            on_ready = partial(_report_ready, service, address, as_json, quiet, open_browser)
            ended = run_server(ServiceServer(service, keys, not is_loopback(host), on_ready=on_ready), bound)
    if not ended:  # the model is in the middle of a long pass, and nobody waits for it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _report_ready(service: "Service", address: str, as_json: bool, quiet: bool, open_browser: bool) -> None:
    detectors = list(service.trained)
    if as_json:
        emit_json({"url": address, "model": service.model, "detectors": detectors})
    else:
        say(f"{', '.join(detectors)} on {service.model}: {address}  (Ctrl-C ends)", quiet)
    if open_browser and has_screen():
        webbrowser.open(address)
