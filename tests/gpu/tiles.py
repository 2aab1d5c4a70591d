"""Tiles of one stage, each computing a problem of its op: `python tests/gpu/tiles.py gemm blocked`.

A stage whose space has at most `COMPLETE` kernels is tried completely; of the others, so many that each valid pair of
values of two tunables occurs. Problems alternate between the op's variants, dtypes, sizes and layouts. Kernels that
cannot run on this device are rendered in both dialects, and validated by naga. Those that no problem suits, and those
whose text is too long for any driver, are passed over, and named.
"""

import argparse
import dataclasses
import itertools
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter

from webmm import Device
from webmm.cases import OPS, op_of
from webmm.errors import WebmmError
from webmm.kernels import STAGES, kernel_class
from webmm.measure.selftest import prove
from webmm.wgsl import naga
from webmm.wgsl.render import expressible, render

COMPLETE = 400  # kernels
REOPENED = 100  # kernels after which the device is replaced, with its pipelines
NAMES = [f"{op} {stage}" for op, stages in STAGES.items() for stage in stages]
TOO_LONG = "drivers take minutes for more"  # how render() refuses a text
WORDS = RIGHT, VALID, PASSED_OVER, FAILED = "right", "only validated", "passed over", "failed"
# Work for a problem, a second of a CPU, and of an invocation. Compilation is apart: 20 s of `packed`'s largest tiles.
QUICK, LEAST = 2**24, 16
LONGEST = 4096  # along an axis of the problems that are added
TELL = 10  # seconds between lines about the progress


def tiles(cls, seed, subgroups=False):
    """Return the kernels to try, in random order, or those of them that use subgroups."""
    kernels = [kernel for kernel in cls.space() if kernel.subgroup or not subgroups]
    random.Random(seed).shuffle(kernels)
    return kernels if len(kernels) <= COMPLETE else list(covering(kernels))


def covering(kernels):
    """Yield the kernels that have a pair of values which no earlier one had."""
    had = set()
    for kernel in kernels:
        pairs = set(itertools.combinations(dataclasses.asdict(kernel).items(), 2))
        if not pairs <= had:
            had |= pairs
            yield kernel


def problems(op):
    """Return the problems of `webmm selftest`, variants and dtypes first, and tiny ones; then the op's examples."""
    known = [op_of(op, variant) for variant in OPS[op].variants or ("",)]
    tried = [
        each.problem(size, dtype.name, layout)
        for size, layout in OPS[op].tried
        for each in known
        for dtype in each.dtypes
    ]
    tiny = {layout: tuple(range(1, len(size) + 1)) for size, layout in OPS[op].tried}
    short = {layout: tuple(min(n, LONGEST) for n in size) for size, layout in OPS[op].tried if max(size) > LONGEST}
    for sizes in (short, tiny):
        tried += [each.problem(size, each.dtypes[0].name, layout) for layout, size in sizes.items() for each in known]
    return tried, [problem for _, problem in OPS[op].examples()]


def work(kernel, problem):
    """Return the multiplications of the first dispatch's tiles, and the parts of all splits that later ones read.

    Those are billions if each of 999 short rows is split among 2,048 workgroups.
    """
    of = {name: getattr(kernel, name, 1) for name in ("tm", "tn", "bk", "splits")}
    each = [math.prod(step.dispatch(problem)) * step.invocations for step in kernel.dispatches]
    steps = max(1, kernel.dispatches[0].iterations(problem) // of["splits"])
    return each[0] * max(LEAST, steps * of["tm"] * of["tn"] * of["bk"]) + LEAST * sum(each[1:]) * of["splits"]


def quick(kernel, fits):
    """Return the first problem of at most QUICK work, or the one with the least; None if there is none."""
    few = (problem for problem in fits if work(kernel, problem) <= QUICK)
    return next(few, None) or min(fits, key=lambda problem: work(kernel, problem), default=None)


def outcome(kernel, candidates, examples, device):
    """Return what became of a kernel, for the first problem that suits it: a word as in `WORDS`, and the reason."""
    suited = [problem for problem in candidates if kernel.unsuited(problem) is None]
    suited = suited or [problem for problem in examples if kernel.unsuited(problem) is None]
    if not suited:
        return PASSED_OVER, kernel.unsuited(candidates[0])  # such as a tile that is shorter than every row
    fit = quick(kernel, [problem for problem in suited if kernel.check(problem, device.capabilities) is None])
    try:
        if fit is not None:
            words = prove(kernel, fit, device)
            return (FAILED if words else RIGHT), words
        for step in kernel.dispatches:
            if expressible(step, suited[0], "tint"):
                render(step, suited[0], "tint")
            shape = step.matrix_shape
            if shape and len({shape.m, shape.n, shape.k}) > 1:
                continue  # naga has square fragments only
            if "naga" not in step.not_in and expressible(step, suited[0], "naga"):
                naga.translate(render(step, suited[0], "naga").wgsl, f"{step} {suited[0]}")
    except WebmmError as error:
        return (PASSED_OVER if TOO_LONG in str(error) else FAILED), str(error)
    return VALID, ""


def run(cls, seed, first, most, subgroups=False):
    """Try the tiles from number `first` on, at most `most`, print those that are wrong, and return their number."""
    every, (candidates, examples) = tiles(cls, seed, subgroups), problems(cls.op)
    last = len(every) if most is None else min(len(every), first + most)
    found, told, device = Counter(), time.monotonic(), None
    for i in range(first, last):
        if device is None or i % REOPENED == 0:
            if device:
                device.close()
            device = Device()
        start = i % len(candidates)
        word, why = outcome(every[i], candidates[start:] + candidates[:start], examples, device)
        found[word] += 1
        if word == FAILED:
            print(f"tile {i}: {every[i]}: {why}\n  again: {again(cls, seed, i, subgroups)} --most 1", flush=True)
        elif word == PASSED_OVER:
            print(f"tile {i}: {every[i]}: passed over: {why}", flush=True)
        if i == last - 1 or time.monotonic() - told > TELL:
            told = time.monotonic()
            counts = ", ".join(f"{found[word]} {word}" for word in WORDS)
            rest = again(cls, seed, i + 1, subgroups) + f" --most {last - i - 1}" * (most is not None)
            print(f"{i + 1} of {len(every)} tiles: {counts}; next: {rest}", flush=True)
    return found[FAILED]


def again(cls, seed, first, subgroups):
    return f"tests/gpu/tiles.py {cls.op} {cls.name}{' --subgroups' * subgroups} --seed {seed} --first {first}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", choices=STAGES)
    parser.add_argument("stage")
    parser.add_argument("--seed", type=int, default=0, help="of the order, and of the tiles of a large space")
    parser.add_argument("--first", type=int, default=0, help="skip those before this number")
    parser.add_argument("--most", type=int, help="try so many")
    parser.add_argument("--subgroups", action="store_true", help="only tiles that use subgroups")
    options = parser.parse_args()
    stage = kernel_class(options.stage, options.op)
    return bool(run(stage, options.seed, options.first, options.most, options.subgroups))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="webmm-tiles-") as folder:
        os.environ["WEBMM_CACHE_DIR"] = folder
        sys.exit(main())
