"""What is said about a kernel that fails: its wrong elements, and the commands that show its text and its steps."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from webmm import plugins
from webmm.cases import OPS, op_of
from webmm.cases.base import Case
from webmm.engine.device import Device
from webmm.errors import ShaderError, WebmmError
from webmm.kernels import STAGES, configure
from webmm.kernels.base import Kernel
from webmm.kernels.subgroups import pinned
from webmm.measure.verify import Wrong, excess
from webmm.problems import DEFAULT_OP
from webmm.problems.base import Problem
from webmm.wgsl.compilers import shown
from webmm.wgsl.render import Dialect, tags_of


def refusal(error: ShaderError, kernel: Kernel[Any], problem: Problem, device: Device) -> str:
    """Return the error of a kernel that does not compile, with the command that prints the text that was refused."""
    if not error.wgsl or device.shader(kernel, problem).wgsl != error.wgsl:  # of another dispatch, or a debug shader
        return str(error)
    command = shader_command(kernel, problem, device.engine.dialect)
    if command and pinned(kernel, device.capabilities):
        command += " --pinned"
    return f"{error}\n  the text: {command}" if command else str(error)


def in_words(wrong: Wrong, problem: Problem) -> str:
    """Return a line about the wrong elements of a problem's result."""
    op = OPS[problem.op]
    return wrong.words(f"{op.result}[{', '.join(map(str, op.element(problem, wrong.first)))}]")


def steps(wrong: Wrong, kernel: Kernel[Any], problem: Problem, device: Device) -> str:
    """Return a line with the command that shows how the first wrong element is computed; empty if there is none."""
    place = OPS[problem.op].element(problem, wrong.first)
    command = debug_command(kernel, problem, device, place)
    return f"\n  step by step: {command}" if command else ""


def incorrect(
    case: Case[Any], got: NDArray[Any], error: float, named: Callable[[int], str] | None = None
) -> tuple[str, Wrong | None]:
    """Return a line about a wrong result, whose largest error is `error`, and its wrong elements if they are known.

    `named` names an element by its place, for a problem without an op.
    """
    words = excess(error, case.bound, case.scale)
    wrong = case.wrong(got)
    if not wrong:
        return words, None
    first = wrong.words(named(wrong.first)) if named else in_words(wrong, case.problem)
    return f"{first}; {words}", wrong


def shader_command(kernel: Kernel[Any], problem: Problem, dialect: Dialect) -> str:
    """Return the command that prints the text of a kernel for a problem; empty if there is none."""
    if kernel.name not in STAGES[problem.op] or not (size := _size(problem)):
        return ""
    other = ["--dialect", dialect] if dialect != "naga" else []
    return shlex.join(["webmm", "shader", kernel.name, "--size", size, *_options(kernel, problem), *other])


def debug_command(kernel: Kernel[Any], problem: Problem, device: Device, place: tuple[int, ...]) -> str:
    """Return the command that shows how a kernel computes an element; empty if it records nothing for the problem."""
    p: Any = problem
    known = kernel.name in STAGES[p.op] and OPS[p.op].traced(p)
    if not known or not (size := _size(p)):
        return ""
    try:
        if not tags_of(kernel, p, device.engine.dialect):
            return ""
    except WebmmError:
        return ""
    at = ["--at", ",".join(map(str, place))]
    words = ["webmm", "debug", kernel.name, *size.split("x"), *at, *_options(kernel, p), *_machine(device)]
    return shlex.join(words)


def _size(problem: Problem) -> str:
    """Return the size of a problem as its op parses it; empty if there is none, as for operands that are not dense."""
    (m, n, k, batch), variant = problem.sizes, OPS[problem.op].variant_of(problem)
    if "own_" in variant:  # a function or a reduction of a program, which no command knows
        return ""
    op = op_of(problem.op, variant)
    for text in (f"{m}x{n}x{k}", f"{m}x{n}", f"{m}x{n}x{k}@1", f"{m}x{n}x{k}@{batch}", f"{batch}x{m}x{n}x{k}"):
        try:
            if op.problem(op.parse(text), problem.dtype.name, problem.layout or "nn") == problem:
                return text
        except WebmmError:
            pass
    return ""


def _options(kernel: Kernel[Any], problem: Problem) -> list[str]:
    """Return the options that select a problem's op, dtype and layout, and a kernel's tunables and file."""
    op, variant = problem.op, OPS[problem.op].variant_of(problem)
    default = configure(kernel.name, {}, op).config
    words = [word for name, value in kernel.config.items() if value != default[name] for word in _set(name, value)]
    if op != DEFAULT_OP or variant:
        words += ["--op", f"{op}:{variant}".rstrip(":")]
    if problem.dtype != op_of(op, variant).dtypes[0]:
        words += ["--dtype", problem.dtype.name]
    if problem.layout not in ("", "nn"):
        words += ["--layout", problem.layout]
    files = dict.fromkeys(filter(None, map(plugins.registered_file, (type(OPS[op]), type(kernel)))))
    return words + [word for file in files for word in ("--plugin", shown(file))]


def _set(name: str, value: object) -> tuple[str, str]:
    return "--set", f"{name}={value}"


def _machine(device: Device) -> list[str]:
    """Return the options that select a device, unless it is the one that `webmm debug` uses."""
    cpu, engine = device.info.kind == "cpu", device.engine.name
    adapter = [] if cpu else ["--adapter", str(device.info.index) if device.info.index >= 0 else device.info.name]
    return adapter + (["--engine", engine] if engine != "wgpu" or not cpu else [])
