"""References for `webmm bench` besides NumPy: PyTorch and ONNX Runtime, on whatever device they see.

None of them is a requirement of webmm. Operands stay on the reference's device, and products are queued as those of
webmm are: the wall clock of many, and one wait.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ConfigError
from webmm.problems.gemm import Gemm

NAMES = ("numpy", "torch", "onnxruntime")
Call = Callable[[], Any]


class Reference(ABC):
    """A library that multiplies matrices; raises ConfigError if it is not installed."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    dtypes: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        try:
            self.api, *_ = (importlib.import_module(package) for package in self.packages)
        except ImportError as error:
            wanted = " ".join(self.packages)
            raise ConfigError(f"--reference {self.name}: {error}; to install it: pip install {wanted}") from error
        self.device = self.find_device()

    @property
    def engine(self) -> str:
        """Name and version, as in records."""
        return f"{self.name} {self.api.__version__}"

    @abstractmethod
    def find_device(self) -> str:
        """Return the name of the device that it uses: the most capable one that it sees."""

    @abstractmethod
    def product(self, problem: Gemm, a: NDArray[Any], b: NDArray[Any]) -> tuple[Call, Call, Call]:
        """Return functions that queue A·B of stored operands, wait for it, and return the result as a NumPy array."""

    def check(self, dtype: str) -> None:
        """Raise ConfigError if it does not multiply matrices of this dtype here."""
        if dtype not in self.dtypes:
            raise ConfigError(f"--reference {self.name} takes {', '.join(self.dtypes)}, not {dtype}")


class Torch(Reference):
    """PyTorch; TF32 is off, as it is by default."""

    name = "torch"
    packages = ("torch",)
    dtypes = ("float32", "float16", "bfloat16", "float64")

    def find_device(self) -> str:
        """Return cuda (also AMD's ROCm), xpu, mps or cpu."""
        kinds = (("cuda", self.api), ("xpu", self.api), ("mps", self.api.backends))
        return next(
            (kind for kind, where in kinds if hasattr(where, kind) and getattr(where, kind).is_available()), "cpu"
        )

    def product(self, problem: Gemm, a: NDArray[Any], b: NDArray[Any]) -> tuple[Call, Call, Call]:
        """Return calls of torch.matmul; a transposed operand is a view."""
        torch, dtype = self.api, getattr(self.api, problem.dtype.name)
        operands = []
        for x, stored in ((a, problem.a), (b, problem.b)):
            on_device = torch.from_numpy(x.astype(problem.dtype.sums.numpy)).to(self.device, dtype)
            operands.append(on_device.mT if stored.transposed else on_device)
        wait = {"cpu": lambda: None}.get(self.device) or getattr(torch, self.device).synchronize
        return (
            lambda: torch.matmul(*operands),
            wait,
            lambda: torch.matmul(*operands).to("cpu", getattr(torch, problem.dtype.sums.name)).numpy(),
        )


class OnnxRuntime(Reference):
    """ONNX Runtime: its first execution provider, with a model of one MatMul."""

    name = "onnxruntime"
    packages = ("onnxruntime", "onnx")
    dtypes = ("float32", "float16", "float64")

    def find_device(self) -> str:
        """Return the provider's name, such as CUDA or CPU."""
        self._provider: str = self.api.get_available_providers()[0]
        if not self._provider.startswith(("CUDA", "ROCM", "Dml", "CoreML", "WebGpu")):
            self._provider = "CPUExecutionProvider"  # others, such as Azure's, compute elsewhere or must be set up
        return self._provider.removesuffix("ExecutionProvider")

    def product(self, problem: Gemm, a: NDArray[Any], b: NDArray[Any]) -> tuple[Call, Call, Call]:
        """Return runs of the model with bound operands; a transposed operand is transposed by the model."""
        options = self.api.SessionOptions()
        options.log_severity_level = 4
        session = self.api.InferenceSession(_model(problem, a.shape, b.shape), options, providers=[self._provider])
        where = "cuda" if self.device in ("CUDA", "ROCM") else "cpu"
        binding = session.io_binding()
        for name, x in (("a", a), ("b", b)):
            bound = self.api.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x), where, 0)
            binding.bind_ortvalue_input(name, bound)
        binding.bind_output("c", where)

        def run() -> None:
            session.run_with_iobinding(binding)

        def result() -> Any:
            run()
            return binding.copy_outputs_to_cpu()[0]

        return run, binding.synchronize_outputs, result


def _model(problem: Gemm, *shapes: tuple[int, ...]) -> bytes:
    """Return a model that multiplies stored operands of these shapes."""
    helper = importlib.import_module("onnx.helper")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(problem.dtype.name))
    nodes, names = [], []
    for x, stored, shape in zip("ab", (problem.a, problem.b), shapes, strict=True):
        names.append(f"{x}_t" if stored.transposed else x)
        if stored.transposed:
            last = len(shape) - 1
            nodes.append(helper.make_node("Transpose", [x], [names[-1]], perm=[*range(last - 1), last, last - 1]))
    nodes.append(helper.make_node("MatMul", names, ["c"]))
    given = [helper.make_tensor_value_info(x, kind, shape) for x, shape in zip("ab", shapes, strict=True)]
    graph = helper.make_graph(nodes, "product", given, [helper.make_tensor_value_info("c", kind, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialised: bytes = model.SerializeToString()
    return serialised


def find(name: str) -> Reference | None:
    """Return the reference called `name`, None for NumPy; raises ConfigError if it is not installed."""
    return {"torch": Torch, "onnxruntime": OnnxRuntime}[name]() if name != "numpy" else None
