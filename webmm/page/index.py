"""What `bundle/index.json` says: which file serves which product of floats, what is chosen, and how time is measured.

A problem is served by the most special shader that covers it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

from webmm import roofline
from webmm.choose import gemm as choose_gemm
from webmm.choose import tuned
from webmm.dtypes import DType
from webmm.engine import timing
from webmm.kernels import LADDER
from webmm.kernels.base import LOOP_LIMIT, MAX_WORKGROUPS
from webmm.kernels.gemm.base import GemmKernel, GemmParams
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.page import ladders
from webmm.page.stages import (
    DTYPES,
    FLAGS,
    chosen,
    configurations,
    flags,
    light,
    offered,
    problems,
    recommended,
    some_problem,
    suits,
)
from webmm.params import layout
from webmm.problems.gemm import Gemm, gemm
from webmm.records import SCHEMA as RECORDS
from webmm.render import ENTRY_POINT, Shader, environment, render, tidy
from webmm.version import __version__

SCHEMA = "webmm.bundle/1"
Add = Callable[[str], str]  # stores a shader's text, and returns its name


def index(add: Add) -> dict[str, Any]:
    """Return what the page reads at first; `add` stores a shader's text and returns its name."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "records": RECORDS,
        "entry_point": ENTRY_POINT,
        "max_workgroups": MAX_WORKGROUPS,
        "loop_limit": LOOP_LIMIT,
        "ladders": [ladder.title for ladder in ladders.LADDERS],
        "flags": FLAGS,
        "params": _params(),
        "bindings": [dataclasses.asdict(b) for b in render(LADDER[0](), gemm(1, 1, 1), "tint").bindings],
        "timing": _timing(),
        "dtypes": {d.name: {"eps": d.eps, "tiny": d.tiny, "features": sorted(d.features)} for d in DTYPES},
        "choices": _choices(),
        "roofline": _roofline(add),
        "fragments": _fragments(add),
        "kernels": [_kernel(cls, add) for cls in offered()],
    }


def _params() -> dict[str, Any]:
    where = layout(GemmParams)
    return {"size": where.size, "members": {m.name: m.offset for m in where.members}}


def _timing() -> dict[str, Any]:
    return {
        "warm_up": timing.WARM_UP,
        "cold": timing.COLD,
        "wake": timing.WAKE,
        "sample_time": timing.SAMPLE_TIME,
        "min_samples": timing.MIN_SAMPLES,
        "max_samples": timing.MAX_SAMPLES,
        "batch_time": timing.BATCH_TIME,
    }


def _choices() -> dict[str, Any]:
    """Return what `choose` takes. A browser's software adapter is SwiftShader, to which `cpu_lanes` can be fitted.

    There it is taken only where tiles fit: compiling its boundary checks takes longer than most products.
    """

    def named(kernels: Iterable[GemmKernel], fitting: bool = False) -> list[dict[str, Any]]:
        return [{"kernel": kernel.name, "config": kernel.config, "fitting": fitting} for kernel in kernels]

    cpu = [*named([light(CpuLanes)], fitting=True), *named(choose_gemm.CPU)]
    known = [
        {
            "vendor": re.split(r"[\s-]", record.adapter)[0].lower(),
            **{name: getattr(record, name) for name in ("dtype", "m", "n", "k", "kernel", "config", "gflops")},
        }
        for record in tuned.shipped()
        if tuned.kernel_of(record) and tuned.family(record) == "dawn"
    ]
    return {
        "enough_tiles": choose_gemm.ENOUGH_TILES,
        "gpu": named(choose_gemm.GPU),
        "cpu": cpu,
        "matrix": {
            "kernel": MatrixUnit.name,
            "tiles": choose_gemm.MATRIX_TILES,
            "enough_tiles": choose_gemm.ENOUGH_MATRIX_TILES,
            "some_tiles": choose_gemm.SOME_MATRIX_TILES,
            "few": choose_gemm.FEW,
        },
        "tuned": known,
    }


def _kernel(cls: type[GemmKernel], add: Add) -> dict[str, Any]:
    default = cls()
    return {
        "name": cls.name,
        "summary": cls.summary,
        "changed": changed(default),
        "vector_axes": [cls.a_vector_axis, cls.b_vector_axis],
        "vector": cls.vector,
        "tunables": [
            {"name": f.name, "doc": f.metadata["doc"], "default": f.default, "candidates": f.metadata["candidates"]}
            for f in dataclasses.fields(cls)
        ],
        "light": configurations(cls).index(light(cls)),
        "configs": [_config(kernel, add) for kernel in configurations(cls)],
    }


def _config(kernel: GemmKernel, add: Add) -> dict[str, Any]:
    main = kernel in recommended(type(kernel))
    every = main and (not isinstance(kernel, MatrixUnit) or kernel in chosen(MatrixUnit))
    grid, problem = kernel.grid, some_problem(kernel)
    return {
        "config": list(kernel.config.values()),
        "workgroup_size": kernel.workgroup_size,
        "workgroup_bytes": kernel.workgroup_bytes,
        "inner_step": kernel.inner_step,
        "grid": dataclasses.asdict(grid),
        "features": sorted(render(kernel, problem, "tint").features - problem.features),
        "subgroup": kernel.subgroup,
        "matrix": ladders.matrix(kernel),
        "shaders": {
            dtype.name: _specialisations(kernel, dtype, every, add)
            for dtype in DTYPES
            if suits(kernel, dtype) and (main or dtype == problem.dtype)
        },
    }


def _specialisations(kernel: GemmKernel, dtype: DType, every: bool, add: Add) -> dict[str, str]:
    """Return which file serves which flags; only one name per content and per flags that matter."""
    served: dict[str, str] = {}
    for problem in problems(kernel, dtype, every):
        key = str(flags(kernel.specialise(problem)))
        if key not in served:
            served[key] = add(shader(kernel, problem).wgsl)
    return served


def shader(kernel: GemmKernel, problem: Gemm) -> Shader:
    """Return what the page runs for `problem`, where the bundle holds its very specialisation."""
    return render(kernel, problem, "tint")


def changed(kernel: GemmKernel) -> str:
    """Return what a stage says, in its template's header, of the step from the stage before."""
    words: list[str] = []
    for line in render(kernel, some_problem(kernel), "tint").wgsl.splitlines():
        comment = line.removeprefix("//").strip()
        if comment.startswith(("Changed from", "First stage")):
            words = [comment]
        elif words and (not line.startswith("//") or comment.startswith(("Shapes:", "Workgroup memory:"))):
            break
        elif words:
            words.append(comment)
    return " ".join(words)


def _fragments(add: Add) -> list[dict[str, Any]]:
    """Return what stages ask of matrix units, each with a shader that an engine compiles if it reads the spelling."""
    kernels = [*recommended(MatrixUnit), *ladders.made_for_matrix_units()]
    asked = [asked for kernel in kernels if (asked := ladders.matrix(kernel))]
    template = environment().get_template("probe/matrix_unit.wgsl")
    rows = []
    for row in (dict(pairs) for pairs in dict.fromkeys(tuple(each.items()) for each in asked)):
        settings = {"shape": row, "size": 2 if row["operands"] == "f16" else 1}
        text = template.render({**settings, "lanes": row["lanes"], "spelling": row["spelling"]})
        rows.append({**row, "shader": add(tidy(text))})
    return rows


def _roofline(add: Add) -> dict[str, Any]:
    """Return the micro-kernels that measure a device's ceilings, for a GPU and for a CPU that plays one."""

    def text(name: str, settings: dict[str, Any]) -> str:
        return add(tidy(environment().get_template(f"roofline/{name}.wgsl").render(settings)))

    def rates(cpu: bool) -> dict[str, Any]:
        return {
            "fma": [
                {
                    "shader": text("fma", variant.settings),
                    "workgroups": variant.workgroups,
                    "results": variant.invocations,
                    "flops": variant.flops,
                }
                for variant in roofline.fma_variants(cpu)
            ],
            "copy": {
                "shader": text("copy", {"workgroup": roofline.COPY_WORKGROUP}),
                "workgroup": roofline.COPY_WORKGROUP,
                "nbytes": roofline.copy_bytes(cpu),
            },
        }

    return {"bindings": [dataclasses.asdict(b) for b in roofline.BINDINGS], "gpu": rates(False), "cpu": rates(True)}
