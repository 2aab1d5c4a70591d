"""Calls on several devices of one host: the devices to use, and pieces that are computed concurrently, one on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from webmm import log
from webmm.cut.pieces import Piece
from webmm.engine.device import Array, Device
from webmm.engine.devices import devices as all_devices
from webmm.errors import DeviceLostError, ProblemError

Devices = Literal["all"] | Sequence[Device]


def chosen(devices: Devices) -> list[Device]:
    """Return the devices to use, without CPU adapters if there are others; raises ProblemError if there are none."""
    found = all_devices() if isinstance(devices, str) and devices == "all" else devices
    listed = isinstance(found, Sequence) and not isinstance(found, str)
    if not listed or not found or not all(isinstance(device, Device) for device in found):
        raise ProblemError(f'devices must be "all" or a list of Devices, not {devices!r}')
    distinct = list(dict.fromkeys(found))
    return [device for device in distinct if device.info.kind != "cpu"] or distinct


def check_divisible(device: Device | None, *operands: Any) -> None:
    """Raise ProblemError unless `devices=` applies to a call with these arguments: to operands in host memory."""
    if device is not None:
        raise ProblemError("device= and devices= exclude each other; name one device, or several")
    if any(isinstance(x, Array) for x in operands):
        raise ProblemError("devices= takes NumPy arrays; an Array is on a device, which computes its calls")


def concurrently(
    pieces: Sequence[Piece],
    devices: list[Device],
    compute: Callable[[Piece, Device], None],
    again: Callable[[Piece, list[Device]], None],
) -> None:
    """Compute all pieces, each on the device that is its worker; call `again` for the pieces of lost devices.

    Raises the first error, and DeviceLostError if no device is left.
    """

    def attempt(piece: Piece) -> Exception | None:
        try:
            compute(piece, devices[piece.worker])
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(len(pieces), "webmm-device") as pool:
        others = [pool.submit(attempt, piece) for piece in pieces[1:]]
        errors = [attempt(pieces[0]), *(future.result() for future in others)]
    lost = [piece for piece, error in zip(pieces, errors, strict=True) if isinstance(error, DeviceLostError)]
    left = [device for device in devices if not device.lost]
    for error in errors:
        if error is not None and not (isinstance(error, DeviceLostError) and left):
            raise error
    for piece in lost:
        log.choice.warning("%s: its piece is computed by the other devices", devices[piece.worker].lost)
        again(piece, left)
