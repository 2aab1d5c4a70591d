"""Rates that the makers of common GPUs publish: what the cost model assumes of one that was not probed.

They are rounded, peaks that programs do not reach (an H100 measures 0.92 and 0.90 of its two), and none was measured by
webmm: a probe replaces them. By the model, they choose as a probe's rates do for 40 random products on an H100.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from webmm.engine.rates import Rates

# By an adapter's name in lower case, without what drivers add in brackets: multiprocessors, 10¹² float32 operations/s
# at the boost clock (an FMA counts as two), and GB/s of memory.
PUBLISHED: dict[str, tuple[int, float, float]] = {
    # NVIDIA, data sheets of data centre GPUs
    "nvidia h100 80gb hbm3": (132, 66.9, 3350.0),
    "nvidia h100 pcie": (114, 51.2, 2000.0),
    "nvidia a100-sxm4-80gb": (108, 19.5, 2039.0),
    "nvidia a100-sxm4-40gb": (108, 19.5, 1555.0),
    "nvidia a100 80gb pcie": (108, 19.5, 1935.0),
    "nvidia a100-pcie-40gb": (108, 19.5, 1555.0),
    "nvidia l40s": (142, 91.6, 864.0),
    "nvidia l40": (142, 90.5, 864.0),
    "nvidia l4": (58, 30.3, 300.0),
    "nvidia a40": (84, 37.4, 696.0),
    "nvidia a10": (72, 31.2, 600.0),
    "nvidia tesla t4": (40, 8.1, 320.0),
    "nvidia tesla v100-sxm2-16gb": (80, 15.7, 900.0),
    "nvidia tesla v100-sxm2-32gb": (80, 15.7, 900.0),
    "nvidia rtx 6000 ada generation": (142, 91.1, 960.0),
    "nvidia rtx a6000": (84, 38.7, 768.0),
    # NVIDIA, GeForce RTX 50 series: product pages, Blackwell white paper
    "nvidia geforce rtx 5090": (170, 104.8, 1792.0),
    "nvidia geforce rtx 5080": (84, 56.3, 960.0),
    "nvidia geforce rtx 5070 ti": (70, 43.9, 896.0),
    "nvidia geforce rtx 5070": (48, 30.9, 672.0),
    "nvidia geforce rtx 5060 ti": (36, 23.7, 448.0),
    "nvidia geforce rtx 5060": (30, 19.2, 448.0),
    # NVIDIA, GeForce RTX 40 series: product pages, Ada white paper
    "nvidia geforce rtx 4090": (128, 82.6, 1008.0),
    "nvidia geforce rtx 4080 super": (80, 52.2, 736.0),
    "nvidia geforce rtx 4080": (76, 48.7, 717.0),
    "nvidia geforce rtx 4070 ti super": (66, 44.1, 672.0),
    "nvidia geforce rtx 4070 ti": (60, 40.1, 504.0),
    "nvidia geforce rtx 4070 super": (56, 35.5, 504.0),
    "nvidia geforce rtx 4070": (46, 29.1, 504.0),
    "nvidia geforce rtx 4060 ti": (34, 22.1, 288.0),
    "nvidia geforce rtx 4060": (24, 15.1, 272.0),
    # NVIDIA, GeForce RTX 30 series: product pages, Ampere white paper
    "nvidia geforce rtx 3090 ti": (84, 40.0, 1008.0),
    "nvidia geforce rtx 3090": (82, 35.6, 936.0),
    "nvidia geforce rtx 3080 ti": (80, 34.1, 912.0),
    "nvidia geforce rtx 3080": (68, 29.8, 760.0),
    "nvidia geforce rtx 3070 ti": (48, 21.7, 608.0),
    "nvidia geforce rtx 3070": (46, 20.3, 448.0),
    "nvidia geforce rtx 3060 ti": (38, 16.2, 448.0),
    "nvidia geforce rtx 3060": (28, 12.7, 360.0),
    # NVIDIA, GeForce RTX 20 and GTX series: product pages, Turing and Pascal white papers
    "nvidia geforce rtx 2080 ti": (68, 13.4, 616.0),
    "nvidia geforce rtx 2080 super": (48, 11.2, 496.0),
    "nvidia geforce rtx 2080": (46, 10.1, 448.0),
    "nvidia geforce rtx 2070": (36, 7.5, 448.0),
    "nvidia geforce rtx 2060": (30, 6.5, 336.0),
    "nvidia geforce gtx 1080 ti": (28, 11.3, 484.0),
    "nvidia geforce gtx 1080": (20, 8.9, 320.0),
    "nvidia geforce gtx 1070": (15, 6.5, 256.0),
    "nvidia geforce gtx 1060 6gb": (10, 4.4, 192.0),
    "nvidia geforce gtx 1060 3gb": (9, 3.9, 192.0),
    # AMD, product pages (units issue two operations at once from RX 7000 on)
    "amd radeon rx 9070 xt": (64, 48.7, 640.0),
    "amd radeon rx 7900 xtx": (96, 61.4, 960.0),
    "amd radeon rx 7900 xt": (84, 51.5, 800.0),
    "amd radeon rx 7800 xt": (60, 37.3, 624.0),
    "amd radeon rx 7700 xt": (54, 35.2, 432.0),
    "amd radeon rx 7600": (32, 21.5, 288.0),
    "amd radeon rx 6900 xt": (80, 23.0, 512.0),
    "amd radeon rx 6800 xt": (72, 20.7, 512.0),
    "amd radeon rx 6800": (60, 16.2, 512.0),
    "amd radeon rx 6700 xt": (40, 13.2, 384.0),
    "amd radeon rx 6600 xt": (32, 10.6, 256.0),
    "amd radeon rx 6600": (28, 8.9, 224.0),
    "amd radeon rx 580 series": (36, 6.2, 256.0),
    # Intel, product pages: Xe cores of 128 operations per cycle at their graphics clock
    "intel arc a770 graphics": (32, 17.2, 560.0),
    "intel arc a750 graphics": (28, 14.7, 512.0),
    "intel arc b580 graphics": (20, 13.7, 456.0),
    # Apple, announcements of these chips
    "apple m1": (8, 2.6, 68.0),
    "apple m1 pro": (16, 5.2, 200.0),
    "apple m1 max": (32, 10.4, 400.0),
    "apple m2": (10, 3.6, 100.0),
    "apple m2 pro": (19, 6.8, 200.0),
    "apple m2 max": (38, 13.6, 400.0),
}
UNNAMED = ("geforce", "quadro", "tesla", "titan")  # first words of NVIDIA's
# Nobody publishes these: the cache's rate for each multiprocessor, as of a GeForce RTX 4060, and the µs of a dispatch.
CACHE_GBYTES, LAUNCH_US = 62.5, 5.0


def vendor_first(adapter: str) -> list[str]:
    """Return the words of an adapter's name, its vendor first: drivers leave NVIDIA out for some, browsers never do."""
    words = adapter.lower().split()
    return ["nvidia", *words] if words and words[0] in UNNAMED else words


def published(adapter: str) -> Rates | None:
    """Return the rates of the GPU with an adapter's name, or None if it is not in the table."""
    first, *others = adapter.lower().split("(")
    words = [first, *[other.split(")")[-1] for other in others]]
    found = PUBLISHED.get(" ".join(vendor_first(" ".join(words))))
    if found is None:
        return None
    multiprocessors, tflops, gbytes = found
    return Rates(tflops * 1e3, gbytes, multiprocessors * CACHE_GBYTES, LAUNCH_US, multiprocessors)
