"""Pictures of C while kernels fill it, side by side, in the order of their workgroups: `webmm watch`.

A picture is a real dispatch: the kernel runs with the first workgroups of its grid only, and C, which was all NaN, is
read back. So the tiles are where the kernel's own mapping of workgroups to C puts them, and their values are what the
device computed. In a full dispatch, a device starts workgroups in about this order, many at once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from webmm.engine import timing
from webmm.engine.device import Device
from webmm.errors import ConfigError, ShaderError, UnsupportedError
from webmm.files import write_atomically
from webmm.kernels.base import Kernel, fold
from webmm.measure.verify import bound, worst_error
from webmm.problems.gemm import Gemm

if TYPE_CHECKING:
    from PIL.Image import Image

NEEDED = "pip install 'webmm[window]'"
SIDE = 512  # pixels of a panel at most
GAP, HEADING = 12, 34  # pixels between panels, and for the words above each
PAUSE, LAST = 80, 2500  # milliseconds of a picture, and of the last one
SHADES = 96  # of C in a file
PAPER, EMPTY, INK, FRESH = (24, 28, 38), (44, 50, 64), (228, 232, 240), (255, 255, 255)
SCALE = ((36, 84, 163), (92, 186, 196), (250, 204, 96), (232, 89, 12))  # colours of C, from its least to its greatest
WAVES = 9.0  # across C


@dataclass(frozen=True)
class Filling:
    """What a kernel has filled: its first `done` of `total` workgroups have run; `c` is NaN elsewhere."""

    kernel: Kernel[Gemm]
    done: int
    total: int
    c: NDArray[np.float32]

    @property
    def caption(self) -> str:
        """The kernel's name and how far it is."""
        return f"{self.kernel.name}: {self.done:,} of {self.total:,} workgroups"


def operands(problem: Gemm) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return A (m, k) and B (k, n), in float32, whose product is a smooth picture."""
    rng = np.random.default_rng(7)
    pace = rng.uniform(-WAVES, WAVES, problem.k)
    shift = rng.uniform(0, 2 * math.pi, problem.k)
    rows, columns = np.linspace(0, 1, problem.m), np.linspace(0, 1, problem.n)
    a = np.cos(np.outer(rows, pace) + shift)
    b = np.sin(np.outer(pace[::-1], columns) + shift[:, None])
    return a.astype(np.float32), b.astype(np.float32)


def fillings(
    device: Device, kernels: Sequence[Kernel[Gemm]], problem: Gemm, pictures: int
) -> Iterator[tuple[Filling, ...]]:
    """Yield what the kernels have filled after equal shares of their workgroups, at most `pictures` times.

    Raises ConfigError for a kernel whose workgroups are not one per tile of C, UnsupportedError and ShaderError as
    `Device.launch()` does, and ShaderError if a finished product differs from NumPy's by more than rounding explains.
    """
    totals = [_workgroups(kernel, problem) for kernel in kernels]
    a, b = operands(problem)
    count = min(pictures, max(totals))
    with device.array(a) as x, device.array(b) as y:
        outputs = [device.array(np.full((problem.m, problem.n), np.nan, np.float32)) for _ in kernels]
        launches = [device.launch(kernel, problem, x, y, c) for kernel, c in zip(kernels, outputs, strict=True)]
        device.synchronize()
        for number in range(1, count + 1):
            found = []
            for kernel, launch, c, total in zip(kernels, launches, outputs, totals, strict=True):
                done = math.ceil(total * number / count)
                timing.submit(device, dataclasses.replace(launch, grid=fold(done)))
                found.append(Filling(kernel, done, total, c.numpy()))
            yield tuple(found)
        for filling in found:
            error = worst_error(filling.c, a, b)
            if not error <= bound(problem):
                raise ShaderError(f"{filling.kernel}: the product is wrong on {device.info.name}: error {error:.3g}")
        for c in outputs:
            c.free()


def _workgroups(kernel: Kernel[Gemm], problem: Gemm) -> int:
    """Return the number of workgroups; raises ConfigError unless each fills one tile of C, in one dispatch."""
    grid = getattr(kernel, "grid", None)
    total: int = grid.tiles(problem) if grid else 0
    if len(kernel.dispatches) > 1 or kernel.dispatch(problem) != fold(total):
        raise ConfigError(
            f"{kernel.name} cannot be watched: its workgroups are not one for each tile of C; choose a stage such as "
            "naive, tile_2d or blocked"
        )
    return total


# Pictures


def pictures(shown: Iterator[tuple[Filling, ...]], problem: Gemm) -> Iterator[Image]:
    """Yield a picture of each step of `fillings()`; the colours cover the range of the product."""
    a, b = operands(problem)
    final = a @ b
    low, high = float(final.min()), float(final.max())
    before: tuple[Filling, ...] = ()
    for now in shown:
        panels = [
            _picture(filling, old.c if old else None, low, high)
            for filling, old in zip(now, before or (None,) * len(now), strict=True)
        ]
        yield _beside(panels)
        before = now


def _picture(filling: Filling, before: NDArray[Any] | None, low: float, high: float) -> Image:
    """Return the picture of one kernel; what is new since `before` is brighter."""
    from PIL import Image, ImageDraw

    values = _sampled(filling.c)
    filled = ~np.isnan(values)
    pixels = _colours(np.where(filled, (values - low) / max(high - low, 1e-30), 0).clip(0, 1))
    fresh = filled & (np.isnan(_sampled(before)) if before is not None else True)
    pixels[fresh] = _brighter(pixels[fresh])
    pixels[~filled] = EMPTY
    picture = Image.fromarray(pixels.astype(np.uint8))
    times = max(1, SIDE // max(picture.size))
    picture = picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)
    panel = Image.new("RGB", (max(picture.width, 260), picture.height + HEADING), PAPER)
    panel.paste(picture, (0, HEADING))
    ImageDraw.Draw(panel).text((0, 8), filling.caption, fill=INK, font_size=16)
    return panel


def _colours(places: NDArray[Any]) -> NDArray[np.float64]:
    """Return the colours of SCALE, as (…, 3), at places from 0 to 1."""
    stops = np.linspace(0, 1, len(SCALE))
    channels = [np.interp(places, stops, channel) for channel in zip(*SCALE, strict=True)]
    return np.stack(channels, axis=-1).astype(np.float64)


def _brighter(colours: NDArray[np.float64]) -> NDArray[np.float64]:
    return (colours + 2 * np.array(FRESH, np.float64)) / 3


def _sampled(c: NDArray[Any]) -> NDArray[Any]:
    step = -(-max(c.shape) // SIDE)
    return c[::step, ::step]


def _beside(panels: Sequence[Image]) -> Image:
    from PIL import Image

    width = sum(panel.width for panel in panels) + GAP * (len(panels) + 1)
    whole = Image.new("RGB", (width, max(panel.height for panel in panels) + 2 * GAP), PAPER)
    left = GAP
    for panel in panels:
        whole.paste(panel, (left, GAP))
        left += panel.width + GAP
    return whole


def save(path: Path, images: Sequence[Image]) -> None:
    """Write the pictures as an animated GIF, completely or not at all."""
    from PIL import Image

    palette = Image.new("P", (1, 1))  # one for all, so that only what is new takes space
    scale = _colours(np.linspace(0, 1, SHADES))
    heading = np.linspace(PAPER, INK, 16)
    palette.putpalette(np.concatenate([scale, _brighter(scale), heading, [EMPTY]]).astype(np.uint8).tobytes())
    first, *rest = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    pauses = [PAUSE] * len(rest) + [LAST]
    write_atomically(
        path, lambda file: first.save(file, "GIF", save_all=True, append_images=rest, duration=pauses, loop=0)
    )


# A window


def check(save: Path | None) -> None:
    """Raise ConfigError or UnsupportedError unless pictures can be made, and saved or shown in a window."""
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"pictures need Pillow: {NEEDED}") from error
    if save is None:
        _check_window()
    elif save.suffix.lower() != ".gif":
        raise ConfigError(f"pictures are saved as .gif, not {save.suffix or save}")


def _check_window() -> None:
    """Raise ConfigError unless the packages for a window are installed, UnsupportedError without a display."""
    try:
        import glfw
        import rendercanvas  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"a window needs rendercanvas and glfw: {NEEDED}, or use --save watch.gif") from error
    glfw.ERROR_REPORTING = "ignore"
    if not glfw.init():
        raise UnsupportedError("no window can be opened, since there is no display; use --save watch.gif")


def show(images: Iterator[Image], title: str, *, once: bool) -> None:
    """Show the pictures in a window as they are made, then again until it is closed; with `once`, close it then.

    Raises what `images` raises.
    """
    from rendercanvas.glfw import RenderCanvas, loop

    turns = _turns(images, once)
    first = next(turns)
    canvas = RenderCanvas(title=title, size=first.size, update_mode="continuous", max_fps=1000 / PAUSE)
    context = canvas.get_bitmap_context()
    context.set_bitmap(_pixels(first))
    failed: list[Exception] = []

    def draw() -> None:
        try:
            context.set_bitmap(_pixels(next(turns)))
        except StopIteration:
            canvas.close()
        except Exception as error:  # the loop would log it and go on
            failed.append(error)
            canvas.close()

    canvas.request_draw(draw)
    loop.run()
    if failed:
        raise failed[0]


def _turns(images: Iterator[Image], once: bool) -> Iterator[Image]:
    """Yield each picture as it is made, the last one for longer, and unless `once` all of them again and again."""
    kept = []
    for image in images:
        kept.append(image)
        yield image
    yield from [kept[-1]] * (LAST // PAUSE)
    while not once:
        yield from [*kept, *[kept[-1]] * (LAST // PAUSE)]


def _pixels(image: Image) -> NDArray[np.uint8]:
    return np.asarray(image.convert("RGBA"))
