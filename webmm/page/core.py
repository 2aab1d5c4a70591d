"""Translation of this package's kernels, problems, choice and templates to JavaScript.

`bundle/core.js` has the names in EXPORTS and everything that they need, except for those in LATE, which are in
`bundle/export.js`, loaded on demand; `bundle/templates/` has a module per template.
"""

from __future__ import annotations

import sys
from pathlib import Path

from webmm.page.script import templates
from webmm.page.script.names import Name, ScriptError
from webmm.page.script.program import Program
from webmm.wgsl.render import environment, shader_folder

EXPORTS: dict[str, tuple[str, ...]] = {
    "webmm.arguments.arrays": ("broadcast_shape", "element_of"),
    "webmm.arguments.buffers": ("check_buffers",),
    "webmm.arguments.pieces": ("in_place", "product_axes"),
    "webmm.arguments.products": (
        *("batch_axes", "bias_kind", "check_bias", "check_in_place", "check_residual", "matrix_operand"),
        *("matrix_shape", "problem_of", "problems", "quantized_of", "result_shape", "row_major", "weighted_of"),
    ),
    "webmm.arguments.quantized": (
        *("check_integer_bias", "check_length", "check_sums", "check_zero_c", "furthest", "integer_range"),
        *("quantized_shape", "result_dtype", "weighted_shape", "wrong_scale", "wrong_zero"),
    ),
    "webmm.arguments.rows": (
        *("axes_of", "check_axes", "check_vector", "each_ikj", "ikj", "ikj_shape", "normalisation_of", "of_nothing"),
        *("reduced_shape", "reduction_of"),
    ),
    "webmm.choose": ("candidates",),
    "webmm.choose.gemm": ("attainable", "made_for_matrix_units", "pieces"),
    "webmm.choose.limits": ("dispatch_limits",),
    "webmm.choose.model": ("Machine", "Model"),
    "webmm.choose.tuned": ("engine_of_record", "refusal"),
    "webmm.cut.arrays": ("Extents", "array_pieces"),
    "webmm.cut.pieces": ("Limits",),
    "webmm.dtypes": ("DTYPES", "F16", "F32", "FLOATS", "I32", "I8", "U32", "U8", "dtype_of"),
    "webmm.wgsl.epilogues": ("ACTIVATIONS", "BIASES", "Epilogue", "Terms", "activation_name"),
    "webmm.wgsl.export": ("stage",),
    "webmm.kernels": ("STAGES", "configure", "kernel_class"),
    "webmm.kernels.base": (
        *(
            "Capabilities",
            "INDEX_LIMIT",
            "LOOP_LIMIT",
            "MAX_WORKGROUPS",
            "MatrixShape",
            "Scratch",
            "Texture",
            "features",
        ),
    ),
    "webmm.page.stages": ("configurations", "light", "offered"),
    "webmm.wgsl.params": ("layout",),
    "webmm.problems.base": ("Extent", "check_floats"),
    "webmm.problems.elementwise": ("Elementwise",),
    "webmm.problems.gemm": ("PRECISIONS", "Gemm", "gemm"),
    "webmm.problems.normalise": ("NORMALISATIONS", "Normalisation", "check_normalised"),
    "webmm.problems.product": ("Operand", "layout_of"),
    "webmm.problems.quantized": ("Quantized",),
    "webmm.problems.reduce": (
        "OPERATIONS",
        "Reduction",
        "Span",
        "check_device",
        "check_types",
        "operation_of",
        "reduction",
    ),
    "webmm.problems.weights": ("BITS", "BLOCKS", "WeightOnly"),
    "webmm.measure.records": ("Record",),
    "webmm.wgsl.render": ("ENTRY_POINT", "params_bytes", "render", "tidy"),
    "webmm.version": ("__version__",),
}
# Attributes that translated code reads of the modules of `choose`, and of objects that JavaScript passes in: devices,
# arrays, the template environment.
DESCRIBED = {
    *("candidates", "capabilities", "driver", "engine", "info", "kind", "name", "predicted"),
    *("capacity", "device", "dtype", "element", "get_template", "mT", "ndim", "offset", "render", "shape", "strides"),
}
UNUSED = ("webmm.kernels.base.Kernel.space",)  # methods that nothing on the page calls


LATE = (Name("webmm.wgsl.export", "stage"),)


def modules(program: Program) -> dict[str, str]:
    """Return the texts of the translation's modules by file name."""
    return {"core.js": program.text(LATE), "export.js": program.late_text(LATE, "core.js")}


def program() -> Program:
    """Return the translation of EXPORTS; raises ScriptError for Python outside the supported subset."""
    entries = [Name(module, name) for module, names in EXPORTS.items() for name in names]
    return Program(entries, DESCRIBED, templates.by_keyword(environment(), shader_folder()), UNUSED)


def write_templates(folder: Path) -> int:
    """Write a JavaScript module for each template below `folder`; return their number."""
    names = templates.names(shader_folder())
    for name in names:
        file = (folder / name).with_suffix(".js")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(templates.module(environment(), shader_folder(), name, names), encoding="utf-8")
    return len(names)


if __name__ == "__main__":  # for `make lint`
    try:
        modules(program())
    except ScriptError as error:
        sys.exit(str(error))
