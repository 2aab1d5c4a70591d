"""The web page's folder: the page itself, every shader that it may run, and products to check them with.

A browser never assembles a shader. Each combination of kernel, tile sizes and specialisation is a file, rendered here
by the same `render()` that Python runs and named after its content; `bundle/index.json` says which file serves which
problem. A problem is served by the most special shader that covers it: one with boundary checks is right for aligned
sizes, too, so the tiles that matter come in every specialisation and the others in a few. The ladders of other ops,
problem by problem, are `bundle/prepared.json`, which a page fetches when they are asked for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm import __version__, roofline
from webmm.choose import gemm as choose_gemm
from webmm.choose import tuned
from webmm.dtypes import FLOATS, DType
from webmm.engine import timing
from webmm.errors import ConfigError
from webmm.kernels import BEYOND, LADDER
from webmm.kernels.base import LOOP_LIMIT, MAX_WORKGROUPS
from webmm.kernels.gemm.base import GemmKernel, GemmParams, Specialisation
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.subgroup import Subgroup
from webmm.page import ladders
from webmm.params import layout
from webmm.problems.gemm import Gemm, gemm
from webmm.records import SCHEMA as RECORDS
from webmm.render import ENTRY_POINT, Shader, environment, render, tidy

SCHEMA = "webmm.bundle/1"
PREPARED = "bundle/prepared.json"
MARKER = "bundle/index.json"  # a folder that holds it is one of ours, and may be replaced

# The flags of a specialisation, from its lowest bit: how a page looks a shader up. Its matrices are dense, row-major.
FLAGS = ("vec_a", "vec_b", "vec_c", "edge_m", "edge_n", "edge_k", "long_k")

# Tunables whose every combination the page offers, and how large they grow there: what a picture of a tile can show, in
# a few megabytes. The others move one at a time from their default.
PICTURED = ("size", "tile", "bm", "bn", "bk", "tm", "tn", "wx", "wy", "lanes")
LARGEST = {"bk": 16, "tn": 8}
LARGEST_WORKGROUP = 1024  # invocations: the most that GPUs offer
UNITS_PICTURED = ("bm", "bn", "sm", "sn")  # those of the stage for matrix units, whose fragments are the adapter's

# Software adapters take up to a minute to compile large register tiles; there the page runs these in their place.
LIGHT: dict[str, Any] = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 8}

# Fragments that engines let shaders multiply, with the lanes of a subgroup: on GPUs of NVIDIA, of Intel, of Apple. What
# there is, is the adapter's to say: a page takes of its bundle what it finds there.
FRAGMENTS: tuple[dict[str, Any], ...] = (
    {"fm": 16, "fn": 16, "fk": 16, "lanes": 32},
    {"fm": 8, "fn": 16, "fk": 16, "lanes": 16},
    {"fm": 8, "fn": 8, "fk": 8, "lanes": 32},
)
SPELLINGS = ("current", "deprecated")

DTYPES = FLOATS  # that JavaScript has arrays of, or will have
CASES = ((1, 1, 1), (5, 7, 3), (17, 19, 23), (64, 64, 64), (33, 68, 40), (128, 256, 64), (257, 129, 65), (3, 5, 65_537))


def web_folder() -> Path:
    """Return the folder of the page's own files: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "web"
    return installed if installed.is_dir() else package.parent / "web"


def light(cls: type[GemmKernel]) -> GemmKernel:
    """Return the configuration of a stage that the page runs on a software adapter."""
    if issubclass(cls, CpuLanes):
        return cls(lanes=4)  # SwiftShader's subgroups
    if issubclass(cls, Subgroup):
        return cls(lanes=4, tm=4, tn=4)
    return cls(**LIGHT) if issubclass(cls, RegisterTiled) else cls()


def stages() -> list[type[GemmKernel]]:
    """Return the stages that the page can run: those of one dispatch, whose grid it knows how to count."""
    every = (*LADDER, *BEYOND)
    return [cls for cls in every if len(cls().dispatches) == 1 and "at_most" in (cls().grid_rule() or {})]


def chosen(cls: type[GemmKernel]) -> list[GemmKernel]:
    """Return a stage's default, and what `choose` picks of it."""
    shipped = (tuned.kernel_of(record) for record in tuned.shipped())
    matrix = (MatrixUnit(**tiles) for tiles in choose_gemm.MATRIX_TILES)
    picked = [kernel for kernel in (*choose_gemm.GPU, *matrix, *choose_gemm.CPU, *shipped) if type(kernel) is cls]
    return list(dict.fromkeys([cls(), light(cls), *picked]))


def recommended(cls: type[GemmKernel]) -> list[GemmKernel]:
    """Return the configurations that are run without anyone asking.

    Of a stage for matrix units, these are what is chosen for every kind of fragments and in every spelling.
    """
    if not issubclass(cls, MatrixUnit):
        return chosen(cls)
    variants = [{**fragment, "spelling": spelling} for spelling in SPELLINGS for fragment in FRAGMENTS]
    kernels = (dataclasses.replace(kernel, **variant) for variant in variants for kernel in chosen(cls))
    return list(dict.fromkeys(kernel for kernel in kernels if kernel.invalid() is None))


def configurations(cls: type[GemmKernel]) -> list[GemmKernel]:
    """Return every configuration of a stage that the page offers, the recommended ones first."""
    default = cls().config
    candidates = {f.name: f.metadata["candidates"] for f in dataclasses.fields(cls)}
    shown, fixed = (UNITS_PICTURED, tuple(FRAGMENTS[0])) if issubclass(cls, MatrixUnit) else (PICTURED, ())
    pictured = {
        name: [value for value in values if value <= LARGEST.get(name, value)]
        for name, values in candidates.items()
        if name in shown
    }
    settings = [dict(zip(pictured, values, strict=True)) for values in itertools.product(*pictured.values())]
    alone = {name: values for name, values in candidates.items() if name not in (*shown, *fixed)}
    settings += [{name: value} for name, values in alone.items() for value in values]
    kernels = (cls(**_fitting({**default, **changes})) for changes in settings)
    possible = (kernel for kernel in kernels if kernel.invalid() is None and len(kernel.dispatches) == 1)
    small = (kernel for kernel in possible if kernel.invocations <= LARGEST_WORKGROUP)
    return list(dict.fromkeys([*recommended(cls), *small]))


def _fitting(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the tunables with `unroll` no longer than the tile that it walks."""
    if "unroll" in settings:
        settings["unroll"] = min(settings["unroll"], settings["bk"])
    return settings


def problems(kernel: GemmKernel, dtype: DType, every: bool) -> Iterator[Gemm]:
    """Yield a problem for each specialisation: every one there is, or what fits, whole vectors at edges, and the rest.

    Lengths of 4 tiles fit; a vector more hangs over an edge as a whole; 4 more where only C is written by vectors;
    1 more in single elements.
    """
    grid, step = kernel.grid, kernel.inner_step
    tiles = (grid.elements or grid.tile_m, grid.elements or grid.tile_n, step)
    lengths = [[4 * tile + over for over in dict.fromkeys((0, kernel.vector, 4, 1))] for tile in tiles]
    for m, n, k in itertools.product(*lengths) if every else zip(*lengths, strict=True):
        yield gemm(m, n, k, dtype=dtype)
        if step == 1:  # such loops are written differently where k is beyond what some drivers count
            yield gemm(m, n, 4 * LOOP_LIMIT + k % 4, dtype=dtype)


def flags(spec: Specialisation) -> int:
    """Return the specialisation as a number, bit i for `FLAGS[i]`."""
    return sum(1 << i for i, name in enumerate(FLAGS) if getattr(spec, name))


@dataclass
class _Files:
    """Texts stored under the hash of their content, so that equal ones are one file."""

    folder: Path
    count: int = 0
    names: set[str] = field(default_factory=set)

    def add(self, text: str) -> str:
        name = hashlib.sha256(text.encode()).hexdigest()[:10]
        if name not in self.names:
            self.names.add(name)
            (self.folder / f"{name}.wgsl").write_text(text, encoding="utf-8")
        return name


@dataclass(frozen=True)
class Summary:
    """What `build` wrote."""

    folder: Path
    shaders: int
    files: int
    nbytes: int
    first_load: int  # bytes that a visitor fetches before the first click


def build(out: Path, *, force: bool = False) -> Summary:
    """Write the page and its bundle to the folder `out`, ready for any static host.

    Raises ConfigError where `out` is a file, or holds something that is no bundle and `force` is not given, or cannot
    be written to; `out` is then as it was before.
    """
    _check(out, force)
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".page-", dir=out) as beside:  # within `out`, so on its disk
            shaders = _write_page(Path(beside))
            shutil.rmtree(out / "bundle", ignore_errors=True)
            _move(Path(beside), out)
    except OSError as error:
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or error
        raise ConfigError(f"cannot write the page to {out}: {why}") from error
    finally:
        if made and not (out / MARKER).exists():
            shutil.rmtree(out, ignore_errors=True)
    return _summary(out, shaders)


def _write_page(out: Path) -> int:
    """Write all files of the page to the empty folder `out`; return the number of shaders."""
    shutil.copytree(web_folder(), out, dirs_exist_ok=True, ignore=_not_published)
    bundle = out / "bundle"
    (bundle / "shaders").mkdir(parents=True)
    files = _Files(bundle / "shaders")
    index = {
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
        "roofline": _roofline(files),
        "fragments": _fragments(files),
        "kernels": [_kernel(cls, files) for cls in stages()],
        "cases": _cases(bundle / "cases"),
    }
    _write(out / MARKER, index)
    _write(out / PREPARED, ladders.index(files.add))
    return len(files.names)


def _move(page: Path, out: Path) -> None:
    """Move every file of `page` to `out`, over those of the same names."""
    for path in sorted(page.rglob("*")):
        there = out / path.relative_to(page)
        if path.is_dir():
            there.mkdir(exist_ok=True)
        else:
            path.replace(there)


def _write(path: Path, index: dict[str, Any]) -> None:
    path.write_text(json.dumps(index, separators=(",", ":")) + "\n", encoding="utf-8")


def _check(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder for the page")
    if out.is_dir() and any(out.iterdir()) and not (force or (out / MARKER).is_file()):
        raise ConfigError(f"{out} holds other files; name an empty folder, or use --force to write among them")


def _not_published(folder: str, names: list[str]) -> list[str]:
    """Return what lies beside the page but serves its development only."""
    del folder
    tools = {
        "node_modules",
        "package.json",
        "package-lock.json",
        "tsconfig.json",
        "globals.d.ts",
        ".npmrc",
        "README.md",
    }
    return [name for name in names if name in tools]


def _summary(out: Path, shaders: int) -> Summary:
    paths = [path for path in out.rglob("*") if path.is_file()]
    lazy = {".wgsl", ".npy"}
    sizes = {path: path.stat().st_size for path in paths}
    first = sum(size for path, size in sizes.items() if path.suffix not in lazy and path != out / PREPARED)
    return Summary(out, shaders, len(paths), sum(sizes.values()), first)


# The index


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
        if tuned.kernel_of(record) and not tuned.native(record)
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


def _kernel(cls: type[GemmKernel], files: _Files) -> dict[str, Any]:
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
        "configs": [_config(kernel, files) for kernel in configurations(cls)],
    }


def _config(kernel: GemmKernel, files: _Files) -> dict[str, Any]:
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
            dtype.name: _specialisations(kernel, dtype, every, files)
            for dtype in DTYPES
            if suits(kernel, dtype) and (main or dtype == problem.dtype)
        },
    }


def suits(kernel: GemmKernel, dtype: DType) -> bool:
    """Tell whether the stage multiplies such elements."""
    return kernel.unsuited(gemm(1, 1, 1, dtype=dtype)) is None


def some_problem(kernel: GemmKernel, m: int = 4, n: int = 4, k: int = 4) -> Gemm:
    """Return a product of the first element type of the page that the stage multiplies."""
    return gemm(m, n, k, dtype=next(dtype for dtype in DTYPES if suits(kernel, dtype)))


def _specialisations(kernel: GemmKernel, dtype: DType, every: bool, files: _Files) -> dict[str, str]:
    """Return which file serves which flags; only one name per content and per flags that matter."""
    served: dict[str, str] = {}
    for problem in problems(kernel, dtype, every):
        key = str(flags(kernel.specialise(problem)))
        if key not in served:
            served[key] = files.add(shader(kernel, problem).wgsl)
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


def _fragments(files: _Files) -> list[dict[str, Any]]:
    """Return what stages ask of matrix units, each with a shader that an engine compiles if it reads the spelling."""
    kernels = [*recommended(MatrixUnit), *ladders.made_for_matrix_units()]
    asked = [asked for kernel in kernels if (asked := ladders.matrix(kernel))]
    template = environment().get_template("probe/matrix_unit.wgsl")
    rows = []
    for row in (dict(pairs) for pairs in dict.fromkeys(tuple(each.items()) for each in asked)):
        settings = {"shape": row, "size": 2 if row["operands"] == "f16" else 1}
        text = template.render({**settings, "lanes": row["lanes"], "spelling": row["spelling"]})
        rows.append({**row, "shader": files.add(tidy(text))})
    return rows


def _roofline(files: _Files) -> dict[str, Any]:
    """Return the micro-kernels that measure a device's ceilings, for a GPU and for a CPU that plays one."""

    def text(name: str, settings: dict[str, Any]) -> str:
        return files.add(tidy(environment().get_template(f"roofline/{name}.wgsl").render(settings)))

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


# Products to check the shaders with


def _cases(folder: Path) -> list[dict[str, Any]]:
    """Write A, B (float16, so that any dtype holds them exactly) and NumPy's A·B (float64) of each case."""
    folder.mkdir()
    rng = np.random.default_rng(2024)
    rows = []
    for m, n, k in CASES:
        a = (rng.random((m, k)) - 0.5).astype(np.float16)
        b = (rng.random((k, n)) - 0.5).astype(np.float16)
        files: dict[str, NDArray[Any]] = {"a": a, "b": b, "c": a.astype(np.float64) @ b.astype(np.float64)}
        for name, array in files.items():
            np.save(folder / f"{m}x{n}x{k}.{name}.npy", array, allow_pickle=False)
        rows.append({"m": m, "n": n, "k": k, "flags": _expected_flags(m, n, k)})
    return rows


def _expected_flags(m: int, n: int, k: int) -> dict[str, int]:
    """Return the specialisation that Python gives each stage here, which the page's own choice is tested against."""
    return {cls.name: flags(cls().specialise(some_problem(cls(), m, n, k))) for cls in stages()}
