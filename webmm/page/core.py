"""Translation of this package's kernels, problems, choice and templates to JavaScript.

`bundle/core.js` has the names in EXPORTS and everything that they need; other modules have those in LATE, loaded on
demand; `bundle/templates/` has a module per template.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from webmm import plugins
from webmm.errors import ConfigError
from webmm.page import rows
from webmm.page.script import templates
from webmm.page.script.names import LATE_OPS, Name, ScriptError
from webmm.page.script.program import Program
from webmm.wgsl.render import environment, shader_folder

EXPORTS: dict[str, tuple[str, ...]] = {
    "webmm.arguments.arrays": ("span_of",),
    "webmm.arguments.products": ("check_in_place",),
    "webmm.arguments.views": ("broadcast", "matrices_transposed", "reshaped", "sliced", "transposed"),
    "webmm.calls.doubles": ("as_product",),
    "webmm.calls.elementwise": ("mapped",),
    "webmm.calls.normalise": ("normalised",),
    "webmm.calls.product": ("multiplied",),
    "webmm.calls.reduce": ("reduced",),
    "webmm.choose": ("candidates",),
    "webmm.choose.limits": ("dispatch_limits", "moving_limits"),
    "webmm.choose.tables": ("model_of",),
    "webmm.choose.tuned": ("refusal",),
    "webmm.cut.arrays": ("Extents", "array_pieces"),
    "webmm.cut.pieces": ("Limits",),
    "webmm.engine.aliasing": ("check_arrays", "check_separate"),
    "webmm.engine.timing": (*("MIN_SAMPLES", "Timing", "duration", "time_launch"),),
    "webmm.dtypes": ("DTYPES", "F16", "F32", "FLOATS", "I32", "I8", "U32", "U8", "dtype_of"),
    "webmm.wgsl.epilogues": ("ACTIVATIONS", "Applied", "BIASES", "Terms"),
    "webmm.wgsl.functions": ("Function", "Link", "OWN"),
    "webmm.kernels": ("STAGES", "configure", "kernel_class"),
    "webmm.kernels.base": ("INDEX_LIMIT", "MatrixShape", "Scratch", "features", "fold"),
    "webmm.kernels.traffic": ("moved",),
    "webmm.kernels.subgroups": ("pinned",),
    "webmm.page.browser": (
        *("adapter_of", "asking", "browser_of", "check_random", "finished", "first_able", "fitted", "floats_of"),
        *("introduced", "is_coarse", "own_records", "refused", "spelled", "spellings", "stage_for"),
    ),
    "webmm.page.documents": ("records_of",),
    "webmm.page.labels": ("size_of", "speed_of", "unit_of"),
    "webmm.page.measured": ("measured",),
    "webmm.page.pieces": ("in_placed_pieces",),
    "webmm.page.products": ("matrix_product",),
    "webmm.page.stages": ("configurations", "offered"),
    "webmm.page.subjects": ("label_of", "products", "rungs"),
    "webmm.wgsl.params": ("layout",),
    "webmm.problems.base": ("Extent", "check_floats"),
    "webmm.problems.elementwise": ("Elementwise",),
    "webmm.problems.gemm": ("PRECISIONS", "Gemm", "gemm"),
    "webmm.problems.normalise": ("NORMALISATIONS", "Normalisation"),
    "webmm.problems.product": ("Operand",),
    "webmm.problems.reduce": ("DECLARED", "OPERATIONS", "Reduction", "Span", "operation_of", "reduction"),
    "webmm.measure.records": ("Record", "status_of"),
    "webmm.measure.verify": ("Wrong", "excess"),
    "webmm.measure.roofline": ("BINDINGS", "measure"),
    "webmm.page.tables": ("bars", "empty_bars", "explained", "fastest", "found", "hero", "results", "to_keep"),
    "webmm.text": ("exponent", "figures", "nbytes"),
    "webmm.wgsl.render": ("ENTRY_POINT", "params_bytes", "render", "tidy"),
}
# Attributes that translated code reads of the modules of `choose`, and of objects that JavaScript passes in: devices,
# arrays, runs, the template environment.
DESCRIBED = {
    *("candidates", "capabilities", "driver", "engine", "fallbacks", "field", "fortran", "info", "kind", "name"),
    *("capacity", "device", "dtype", "element", "get_template", "mT", "naga", "ndim", "offset", "records"),
    *("render", "shape", "size", "strides"),
    *("array", "data", "devices", "empty", "free", "result", "run", "sum"),  # of calls, and of arrays
    *("limit", "matrix", "probe", "probes", "roofline", "start", "time", "verdict"),  # of benches and cases
}
UNUSED = ("webmm.kernels.base.Kernel.space",)  # methods that nothing on the page calls


def _late(op: str, names: dict[str, tuple[str, ...]]) -> dict[str, tuple[Name, ...]]:
    """Return the module of one of LATE_OPS: its stages, its choice and other names, by their Python modules."""
    own = (Name("webmm.kernels", "STAGES", op), Name("webmm.choose", "COLUMNS", op))
    return {f"{op}.js": (*own, *(Name(module, each) for module in names for each in names[module]))}


# Modules that are loaded on demand, with their names.
LATE: dict[str, tuple[Name, ...]] = {
    **_late(
        "attention",
        {
            "webmm.calls.attention": ("attended", "checked"),
            "webmm.problems.attention": ("Attention", "Heads"),
        },
    ),
    **_late(
        "quantized",
        {
            "webmm.calls.quantized": ("quantized_product",),
            "webmm.problems.quantized": ("Quantized",),
        },
    ),
    **_late(
        "weights",
        {
            "webmm.calls.weights": ("weighted_product",),
            "webmm.problems.weights": ("WeightOnly",),
        },
    ),
    "cut.js": tuple(Name("webmm.cut.files", name) for name in ("file_pieces", "result_shape", "side_of")),
    "export.js": (Name("webmm.wgsl.export", "stage"),),
    "compiler.js": (
        *(Name("webmm.wgsl.compiler", name) for name in ("Compiled", "shown")),
        *(Name("webmm.wgsl.grammar", name) for name in ("numbers_of", "tree_of")),
        *(Name("webmm.wgsl.links", name) for name in ("check_count", "link_of")),
        *(Name("webmm.wgsl.terms", name) for name in ("EXPORTED", "OURS", "Declaration")),
        Name("webmm.page.declared", "declared"),
    ),
    "elements.js": (  # after the compiler of expressions, with which it is loaded
        *(Name("webmm.arguments.caches", name) for name in ("check_layer", "check_room", "check_whole", "new_tokens")),
        Name("webmm.calls.elementwise", "in_turn"),
        Name("webmm.calls.kv_cache", "written"),
        Name("webmm.calls.rotary", "rotated"),
        Name("webmm.choose.elementwise", "COMPATIBLE"),
        Name("webmm.kernels.elementwise.fused", "Fused"),
    ),
    "drawings.js": (
        *(Name("webmm.learn.drawings.tiles", name) for name in ("legend", "owner_of", "pictured")),
        *(Name("webmm.page.traffic", name) for name in ("facts", "intensity", "place", "roof", "roofline_of")),
        Name("webmm.page.steps", "walked"),
    ),
    "panels.js": (
        Name("webmm.page.tables", "excerpt"),
        *(Name("webmm.page.runs", name) for name in ("ablation", "best_of", "best_so_far", "change", "compared")),
        *(Name("webmm.page.runs", name) for name in ("gain", "hint", "likely", "outcome", "outcomes")),
        *(Name("webmm.page.runs", name) for name in ("outstanding", "speed_on")),
        Name("webmm.page.translated", "translation"),
        *(Name("webmm.page.settings", name) for name in ("changes", "choices", "nearest", "searched", "suited")),
    ),
    "foreign.js": (
        Name("webmm.foreign.counts", "CHECKED"),
        *(Name("webmm.foreign.guards", name) for name in ("GUARD", "UNTOUCHED", "strays")),
        Name("webmm.foreign.pasted", "pasted"),
    ),
    "subjects.js": tuple(Name("webmm.page.subjects", name) for name in ("exhibited", "prepared")),
    "ops.js": tuple(Name("webmm.page.rows", name) for name in ("ROWS", "SHOWN", "FORMS", "FIELDS")),
}
OF_OPS = tuple(f"{op}.js" for op in LATE_OPS)  # the first of these
BY_KEYWORD = ("described",)  # methods that JavaScript calls with keywords


def modules(program: Program) -> dict[str, str]:
    """Return the texts of the translation's modules by file name."""
    late = set(itertools.chain(*LATE.values()))
    return program.texts({"core.js": [name for name in program.entries if name not in late], **LATE})


def program() -> Program:
    """Return the translation of EXPORTS; raises ScriptError, with file and line, for Python outside the subset."""
    if lost := next((cls for cls in plugins.registered() if plugins.file_of(cls) is None), None):
        raise ConfigError(
            f"{lost.__name__} is defined in a program or notebook; the page takes plugins from files only"
        )
    entries = [Name(module, name) for module, names in EXPORTS.items() for name in names]
    by_keyword = {*templates.by_keyword(environment(), shader_folder()), *BY_KEYWORD}
    return Program([*entries, *itertools.chain(*LATE.values())], DESCRIBED, by_keyword, {*UNUSED, *rows.omitted()})


def write_templates(folder: Path) -> int:
    """Write a JavaScript module for each template below `folder`, those of plugins included; return their number."""
    made, own, names = environment(), templates.of_plugins(environment()), templates.names(shader_folder())
    texts = {name: templates.module(made, shader_folder(), name, names) for name in names}
    texts |= {name: templates.plugin_module(made, file, own, names) for file, name in own.items()}
    for name, text in texts.items():
        file = (folder / name).with_suffix(".js")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return len(texts)


if __name__ == "__main__":  # for `make lint`
    try:
        modules(program())
    except ScriptError as error:
        sys.exit(str(error))
