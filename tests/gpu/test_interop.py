"""Interoperability: DLPack, buffers and devices of other wgpu programs, event loops, imports."""

import ast
import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import wgpu
from cffi import FFI

import webmm
from webmm import Device, hooks
from webmm.engine.adapters import choose_adapter
from webmm.engine.header import parse_named
from webmm.errors import ConfigError, FreedArrayError, ProblemError

EYE = np.eye(8, dtype=np.float32)
ALL = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


class Exporter:
    """An array of another library that supports only DLPack."""

    def __init__(self, data, where=(1, 0)):
        self.data, self.where = data, where

    def __dlpack__(self, **options):
        if self.where != (1, 0):
            raise BufferError("only to the same device")
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.where


def test_dlpack_export(device):
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = device.array(data)
    for x, expected in ((array, data), (array.T, data.T), (array[1:, ::2], data[1:, ::2])):
        got = np.from_dlpack(x)
        np.testing.assert_array_equal(got, expected)
    assert array.__dlpack_device__() == (1, 0)
    got = np.from_dlpack(array)
    array.free()
    np.testing.assert_array_equal(got, data, "it is a copy, and outlives the array")
    array = device.array(data)
    with pytest.raises(BufferError, match="a copy in host memory"):
        array.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="a copy in host memory"):
        array.__dlpack__(dl_device=(2, 0))


def test_dlpack_import(device):
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    for x in (data, Exporter(data), Exporter(data.T), device.array(data)):
        got = webmm.from_dlpack(x, device)
        assert got.device is device
        np.testing.assert_array_equal(got.numpy(), x.data if x is not data and hasattr(x, "data") else data)
    np.testing.assert_array_equal(device.array(Exporter(data), "float16").numpy(), data)
    np.testing.assert_array_equal(webmm.matmul(Exporter(data), Exporter(data.T), device=device), data @ data.T)
    with pytest.raises(ProblemError, match=r"Exporter cannot be read through DLPack: .*move it to host memory"):
        device.array(Exporter(data, (2, 0)))
    with pytest.raises(ProblemError, match="list cannot be read through DLPack"):
        webmm.from_dlpack([1.0], device)


@pytest.fixture(scope="module")
def theirs(device):
    """A device that another program opened, with wgpu's default features."""
    opened = choose_adapter(device.info.index)[1].request_device_sync()
    yield opened
    opened.destroy()


def test_using_another_programs_device(theirs):
    before = theirs.create_buffer_with_data(data=EYE.tobytes(), usage=ALL)
    with Device.from_wgpu(theirs) as shared:
        assert shared.wgpu_device is theirs
        assert shared.capabilities.features == set()  # it was opened without features
        assert shared.capabilities.limits["max-buffer-size"] == theirs.limits["max-buffer-size"]
        x = shared.array(EYE)
        np.testing.assert_array_equal((x @ shared.wrap(before, (8, 8))).numpy(), EYE)
    theirs.queue.write_buffer(before, 0, EYE * 2)  # it is still open
    np.testing.assert_array_equal(np.frombuffer(theirs.queue.read_buffer(before), np.float32), (EYE * 2).ravel())
    with pytest.raises(ConfigError, match=r"takes an open wgpu.GPUDevice, not str"):
        Device.from_wgpu("cpu")


def test_wrapping_another_programs_buffer(device):
    gpu = device.wgpu_device
    data = np.arange(80, dtype=np.float32)
    buffer = gpu.create_buffer_with_data(data=data, usage=ALL)
    array = device.wrap(buffer, (6, 8), offset=16)
    np.testing.assert_array_equal(array.numpy(), data[16:64].reshape(6, 8))
    np.testing.assert_array_equal((array @ device.array(EYE)).numpy(), array.numpy())
    gpu.queue.write_buffer(buffer, 64, np.zeros(8, np.float32))
    assert not array[0].numpy().any(), "the memory is shared"
    webmm.gemm(device.array(EYE[:6]), device.array(EYE * 3), array)  # writes to their buffer, only inside the view
    expected = data.copy()
    expected[16:64] = (EYE * 3)[:6].ravel()
    np.testing.assert_array_equal(np.frombuffer(gpu.queue.read_buffer(buffer), np.float32), expected)
    array.free()
    with pytest.raises(FreedArrayError):
        array.numpy()
    del array
    gc.collect()
    assert len(gpu.queue.read_buffer(buffer)) == data.nbytes, "freeing the view must not destroy their buffer"
    buffer.destroy()


def test_buffers_that_cannot_be_wrapped(device, theirs):
    gpu = device.wgpu_device
    usage = wgpu.BufferUsage
    plain = gpu.create_buffer(size=64, usage=usage.COPY_DST)
    small = gpu.create_buffer(size=64, usage=usage.STORAGE)
    foreign = theirs.create_buffer(size=64, usage=ALL)
    with pytest.raises(ProblemError, match="without the usage STORAGE"):
        device.wrap(plain, (4, 4))
    with pytest.raises(ProblemError, match=r"from element 1 on ends at byte 68; the buffer has 64"):
        device.wrap(small, (4, 4), offset=1)
    with pytest.raises(ProblemError, match="of the same device"):
        device.wrap(foreign, (4, 4))
    with pytest.raises(ProblemError, match="of the same device"):
        device.wrap(b"bytes", (4, 4))
    with pytest.raises(ProblemError, match="without the usage COPY_SRC"):
        device.wrap(small, (4, 4)).numpy()
    for shape, dtype, offset in (
        *(((-1, 4), "float32", 0), ((4, 4), "float32", -1), ((4, 4), "float64", 0)),
        *((4, "float32", 0), ((2.5,), "float32", 0), ((2**40, 2**40), "float32", 0)),
    ):
        with pytest.raises(ProblemError):
            device.wrap(small, shape, dtype, offset)


def test_async_calls_do_not_block_the_event_loop(device, monkeypatch):
    # The download blocks until the loop has run several iterations.
    data = np.ones((64, 64), np.float32)
    array, waiting, answer = device.array(data), threading.Event(), threading.Event()
    download = Device.download

    def slow(*args):
        waiting.set()
        assert answer.wait(60), "the event loop was blocked"
        return download(*args)

    async def main(job):
        task = asyncio.ensure_future(job)
        while not waiting.is_set():
            await asyncio.sleep(0.001)
        for _ in range(10):  # only a loop that runs gets here
            await asyncio.sleep(0)
        assert not task.done()
        answer.set()
        return await task

    for job, expected in (
        (lambda: array.numpy_async(), data),
        (lambda: webmm.matmul_async(data, data, device=device), data @ data),
    ):
        monkeypatch.setattr(Device, "download", slow)
        np.testing.assert_array_equal(asyncio.run(main(job())), expected)
        waiting.clear()
        answer.clear()


def test_several_products_at_once(device):
    async def main():
        return await asyncio.gather(
            *(webmm.matmul_async(EYE * i, EYE, device=device) for i in range(20)),
            *(device.array(EYE * i).numpy_async() for i in range(20)),
        )

    for i, got in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(got, EYE * (i % 20))


LOADED = """
import gc, sys, webmm
print(*sys.modules)
eye = webmm.dtypes.np.eye(8, dtype="float32")
assert (webmm.matmul(eye, eye) == eye).all() and gc.isenabled()
print(*sys.modules)
"""


def test_what_an_import_and_a_product_load():
    for _ in range(2):  # the first proves the kernel, and writes the cache
        done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    imported, used = (set(line.split()) for line in done.stdout.splitlines())
    assert not {"wgpu", "jinja2", "webmm.engine.device", "webmm.kernels.gemm", "webmm.calls"} & imported
    rarely = {"asyncio", "click", "filelock", "matplotlib", "rich", "http", "psutil", "rendercanvas", "torch"}
    other = {"webmm.cases", "webmm.kernels.quantized", "webmm.kernels.reduce", "webmm.kernels.weights"}
    assert not (rarely | other) & used


def test_public_names_are_found_at_their_first_use():
    tree = ast.parse(Path(webmm.__file__).read_text())
    typed = next(node.body for node in tree.body if isinstance(node, ast.If))
    known = {f"webmm.{module}:{name}" for module, names in webmm._PUBLIC.items() for name in names.split()}
    assert {f"{node.module}:{alias.name}" for node in typed for alias in node.names} == known
    for name in webmm.__all__:
        found = getattr(webmm, name)
        assert name == "__version__" or found.__name__ == name
    assert webmm.render.__module__ == webmm.Shader.__module__ == "webmm.wgsl.render"
    assert set(webmm.__all__) <= set(dir(webmm))
    assert callable(webmm.config.set)
    assert {"exp", "tanh"} <= set(webmm.wgsl.expressions.FUNCTIONS)
    assert callable(webmm.measure.records.from_json)
    assert not hasattr(webmm.wgsl, "nothing")
    assert not hasattr(webmm, "nothing")
    names = [name for name in vars(hooks.Above) if not name.startswith("_")]
    assert {"matmul", "tune"} <= set(names)
    assert all(getattr(hooks.above, name) for name in names)


PARSED = """
import pycparser.c_parser, numpy, wgpu.backends.wgpu_native, webmm
parse, parsed = pycparser.c_parser.CParser.parse, []
def counted(self, text, *rest):
    parsed.append(len(text))
    return parse(self, text, *rest)
pycparser.c_parser.CParser.parse = counted
eye = numpy.eye(8, dtype=numpy.float32)
assert (webmm.matmul(eye, eye) == eye).all()
print(len(parsed), sum(parsed))
"""


def test_a_first_product_does_not_parse_a_header_for_each_type():
    run = subprocess.run([sys.executable, "-c", PARSED], capture_output=True, text=True, check=True)
    types, characters = map(int, run.stdout.split())
    assert types > 10, "wgpu-py compiles its types now: parse_named() is not needed any more"
    assert characters < 1000 * types  # 15,000 for each type with all typedefs


HEADER = """
typedef uint32_t Flags; typedef struct Chain { struct Chain *next; } Chain; typedef enum Kind { One = 1, Two } Kind;
typedef struct Info { Chain chain; Kind kind; Flags flags[3]; } Info; typedef void (*Callback)(Info const *, void *);
"""
TYPES = ("Info *", "Info[3]", "Flags", "Kind *", "void(*)(Info const *, Kind, void *)", "Callback *", "unsigned")
WRONG = ("Infos *", "Info *)", "struct Missing", "")


def described(ffi, text):
    try:
        return repr(ffi.typeof(text)), ffi.sizeof(text)
    except Exception as error:
        return type(error), str(error)


def cffis():
    plain, ffi = FFI(), FFI()
    plain.cdef(HEADER)
    ffi.cdef(HEADER)
    return plain, ffi


def test_cffi_parses_the_typedefs_that_a_type_names():
    plain, ffi = cffis()
    parse_named(ffi)
    parse_named(ffi)  # it has been done already
    assert "_parse" in vars(ffi._parser)
    assert "_parse" not in vars(plain._parser)
    for text in (*TYPES, *WRONG):
        assert described(ffi, text) == described(plain, text)
    assert ffi.new("Info *", {"kind": 2, "flags": [1, 2, 3]}).flags[2] == 3
    seen = []
    ffi.callback("void(Kind, void *)", lambda kind, _: seen.append(kind))(2, ffi.NULL)
    assert seen == [2]
    ffi.cdef("typedef struct Later { Info info; } Later;")
    assert ffi.sizeof("Later") == ffi.sizeof("Info")


def test_another_cffi_is_left_alone(monkeypatch):
    _, ffi = cffis()
    for version in ((1, 14, 6), (3, 0), ()):
        with monkeypatch.context() as patch:
            patch.setattr("cffi.__version_info__", version)
            parse_named(ffi)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cffi", None)
        parse_named(ffi)
    parse_named(object())  # a compiled module's ffi has no parser
    for name in ("_declarations", "_parser"):
        with monkeypatch.context() as patch:
            patch.setattr(ffi._parser if name == "_declarations" else ffi, name, ())
            parse_named(ffi)
    assert "_parse" not in vars(ffi._parser)


def test_a_type_that_needs_more_typedefs_is_parsed_with_all(monkeypatch):
    plain, ffi = cffis()
    parse = type(ffi._parser)._parse

    def demanding(parser, source):
        assert "typedef Flags" in parser._declarations
        return parse(parser, source)

    monkeypatch.setattr(type(ffi._parser), "_parse", demanding)
    parse_named(ffi)
    assert described(ffi, "Chain *") == described(plain, "Chain *")
