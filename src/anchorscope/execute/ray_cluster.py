"""Joining a Ray cluster, or starting a local one: with a token, without a dashboard, and told within seconds if not.

Token authentication is on unless RAY_AUTH_MODE says otherwise, a local Ray listens on loopback only, and no usage is
reported. Ray itself trusts every machine that has the token: whoever has it can run code on all of them, and a worker
could make Ray unpickle what it likes on the coordinator's machine. The token is not encrypted on its way.
"""

import logging
import os
import secrets
import socket
from typing import Any

from anchorscope.errors import UserError

_PROBE = 5.0  # seconds within which a cluster's port has to answer
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # as HTTP/2 begins, which Ray speaks
_SETTINGS = 4  # the kind of frame that answers it
_SETTINGS_OF_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_NUM_REDIS_GET_RETRIES": "4",  # a wrong token is told after seconds
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or Ray warns of a change to come
}


def import_ray(address: str | None) -> Any:
    """Ray, with its settings made before it is imported, as it reads them then.

    Some can only be made inside it (its version is pinned): those of a Ray that was imported before, and that it does
    not print a paragraph on the command's output for every lost worker.
    """
    for name, value in _SETTINGS_OF_RAY.items():
        os.environ.setdefault(name, value)
    if address is None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's switch for loopback, on every system
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # for this run only
    try:
        import ray
        from ray._private import ray_constants, worker
    except ImportError as error:
        raise UserError(
            "Ray is not installed, and this executor runs on it; install it with: pip install 'anchorscope[ray]'"
        ) from error
    if not ray.is_initialized():
        ray._raylet.Config.initialize("")  # the settings once more, where somebody has imported Ray before
        if address is None:
            ray_constants.ENABLE_RAY_CLUSTER = False
    worker.print_to_stdstream = lambda *told, **more: None  # lost workers are told by the coordinator, once
    return ray


def join(ray: Any, address: str | None, cpus: int | None) -> bool:
    """Starts a local Ray, or joins a cluster; UserError within seconds where there is none.

    A process can be in one cluster only: where it is in one, that one is used, and the answer is False.
    """
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        place = "A local Ray cannot be started"
        # "local": without an address Ray would join whatever cluster it finds, or look for one that is gone.
        given: dict[str, Any] = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    else:
        place, given = f"The Ray cluster at {address!r} cannot be joined", {"address": address}
        if address != "auto":
            _refuse_silent_port(address)
    if ray.is_initialized():
        return False
    try:
        ray.init(**given, **quiet)
    except Exception as error:  # whatever Ray makes of a wrong token, another version, a port of something else
        raise UserError(
            f"{place} ({short(error)}); is the head running, does it have this version of Ray and of Python, and is "
            f"its token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH?"
        ) from error
    return True


def _refuse_silent_port(address: str) -> None:
    """UserError where nothing at the address speaks as Ray does: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in address:
        raise UserError(f"Ray address {address!r}; allowed: HOST:PORT of the cluster's head (10.0.0.1:6379), auto.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE) as connection:
            connection.settimeout(_PROBE)
            connection.sendall(_GREETING)
            reply = connection.recv(9)
        reason = "" if len(reply) > 3 and reply[3] == _SETTINGS else "what answers there is not Ray"
    except OSError as error:
        reason = str(error)
    if reason:
        raise UserError(
            f"There is no Ray cluster at {address!r} ({reason}); start one with: ray start --head, or leave the "
            f"address out for a local one."
        )


def short(error: BaseException) -> str:
    """The first lines of what Ray says, in one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:400] or type(error).__name__
