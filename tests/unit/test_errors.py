"""The error hierarchy, the advice in messages, and the names that select an adapter."""

import inspect
import os
import re
import subprocess
import sys
from types import MappingProxyType

import pytest

import webmm
from webmm import errors
from webmm.dtypes import dtype_of
from webmm.engine import adapters
from webmm.engine.adapters import NO_ADAPTER, AdapterInfo, capabilities, choose_adapter
from webmm.errors import ConfigError, NoAdapterError, ProblemError, WebmmError
from webmm.kernels.base import LOOP_LIMIT
from webmm.problems.gemm import gemm

CLASSES = {name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, Exception)}


def test_all_errors_have_one_base_class():
    assert all(issubclass(cls, WebmmError) for cls in CLASSES.values())


def test_errors_are_public_names():
    assert {name: getattr(webmm, name) for name in set(webmm.__all__) & set(CLASSES)} == CLASSES


@pytest.mark.parametrize("spec", ["complex128", "longdouble", "int64", "datetime64", "S4", "<f4,<f4", ","])
def test_advised_dtypes_are_supported_by_products(spec):
    with pytest.raises(ProblemError) as caught:
        dtype_of(spec)
    first, qmatmul, _ = str(caught.value).partition(" for qmatmul()")
    assert qmatmul
    floats, integers = first.split(" one of ")[1].rsplit(" or of ", 1)
    advised = [name.strip() for name in floats.partition(", e.g.")[0].split(",") if name.strip()]
    assert [gemm(1, 1, 1, dtype=name).dtype.name for name in advised] == advised
    assert integers == "int8, uint8"


@pytest.mark.skipif(sys.platform != "linux", reason="Wayland exists only on Linux")
def test_no_message_about_wayland_without_a_display():
    code = "import os, webmm; before = dict(os.environ); webmm.Device().close(); assert os.environ == before"
    env = {name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_hierarchy_is_the_one_drawn_in_the_docstring():
    drawn = re.findall(r"([ │├└─]*)(\w+Error)(?: \((\w+)\))?", errors.__doc__)
    assert {name for _, name, _ in drawn} - {"ValueError", "MemoryError"} == set(CLASSES)
    for indent, name, builtin in drawn:
        bases = {base.__name__ for base in CLASSES[name].__mro__}
        assert not builtin or builtin in bases
        if len(indent) > 8:
            assert "UnsupportedError" in bases


GPU = AdapterInfo(0, "NVIDIA H200", "NVIDIA", "discrete", "Vulkan", "580.65")
CPU = AdapterInfo(1, "llvmpipe (LLVM 15.0.6, 256 bits)", "Mesa", "cpu", "Vulkan", "")


@pytest.mark.parametrize("wanted", ["0", "discrete", "Discrete", "gpu", "h200", "nvidia", "VULKAN", "580."])
def test_an_adapter_matches_its_index_kind_and_parts_of_names(wanted):
    assert GPU.matches(wanted)


@pytest.mark.parametrize("wanted", ["1", "cpu", "integrated", "amd", "580.66"])
def test_an_adapter_does_not_match_other_names(wanted):
    assert not GPU.matches(wanted)


def test_a_cpu_adapter_does_not_match_gpu():
    assert CPU.matches("cpu")
    assert CPU.matches("llvm")
    assert not CPU.matches("gpu")
    assert not CPU.matches("15")  # digits are an index


def test_str_of_an_adapter():
    assert str(GPU) == "NVIDIA H200 (discrete, Vulkan, 580.65)"
    assert str(CPU).endswith("(cpu, Vulkan, driver unknown)")
    assert GPU.to_json()["backend"] == "Vulkan"


def test_the_most_capable_adapter_is_the_default(monkeypatch):
    monkeypatch.delenv("WEBMM_ADAPTER", raising=False)
    monkeypatch.setattr(adapters, "adapters", lambda engine: [(CPU, "cpu"), (GPU, "gpu")])
    assert choose_adapter() == (GPU, "gpu")
    assert choose_adapter("cpu") == (CPU, "cpu")
    assert choose_adapter(0) == (GPU, "gpu")
    monkeypatch.setenv("WEBMM_ADAPTER", "llvmpipe")
    assert choose_adapter() == (CPU, "cpu")
    assert choose_adapter("gpu") == (GPU, "gpu")


def test_an_unknown_adapter_lists_the_known_ones(monkeypatch):
    monkeypatch.setattr(adapters, "adapters", lambda engine: [(CPU, "cpu"), (GPU, "gpu")])
    with pytest.raises(
        ConfigError, match=r"no adapter matches 'radeon'; the adapters are 1: llvmpipe .*; 0: NVIDIA H200"
    ):
        choose_adapter("radeon")


def test_no_adapter_at_all_says_what_to_install(monkeypatch):
    monkeypatch.setattr(adapters, "adapters", lambda engine: [])
    with pytest.raises(NoAdapterError, match="mesa-vulkan-drivers"):
        choose_adapter()
    for system in ("Linux", "Windows", "macOS"):
        assert system in NO_ADAPTER


class Adapter:
    limits = MappingProxyType({"max-buffer-size": 1})
    features = frozenset({"shader-f16", "texture-compression-bc"})


def test_capabilities_hold_used_features_and_lavapipes_loop_limit():
    assert capabilities(GPU, Adapter).features == {"shader-f16"}
    assert capabilities(GPU, Adapter).loop_limit == 0
    assert capabilities(CPU, Adapter).loop_limit == LOOP_LIMIT
    assert capabilities(CPU, Adapter).name == "lavapipe"
    assert capabilities(GPU, Adapter).limit("max-buffer-size") == 1
