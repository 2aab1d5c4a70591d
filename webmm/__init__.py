"""Matrix multiplication on any GPU, out of one set of WGSL shaders."""

from webmm.api import from_dlpack, gemm, matmul, matmul_async
from webmm.array import Array
from webmm.device import Device
from webmm.errors import WebmmError
from webmm.problem import Problem
from webmm.profiling import Profile, profile
from webmm.quantization import dequantize, quantize
from webmm.quantized import qmatmul
from webmm.reduce_api import gelu, layer_norm, reduce, rms_norm, softmax
from webmm.render import Shader, render
from webmm.weights import BlockWeights, qmatmul_weights, quantize_blocks

__version__ = "0.1.0"
__all__ = [
    "Array",
    "BlockWeights",
    "Device",
    "Problem",
    "Profile",
    "Shader",
    "WebmmError",
    "dequantize",
    "from_dlpack",
    "gelu",
    "gemm",
    "layer_norm",
    "matmul",
    "matmul_async",
    "profile",
    "qmatmul",
    "qmatmul_weights",
    "quantize",
    "quantize_blocks",
    "reduce",
    "render",
    "rms_norm",
    "softmax",
]
