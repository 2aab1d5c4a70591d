"""Arrays: lifetime, attributes, transfers in both directions, views."""

import copy
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import webmm
from webmm import Array, Device
from webmm.calls import streamed
from webmm.engine import transfer
from webmm.engine.transfer import CHUNK, DIRECT_WRITE, LEAST, Staging, Upload
from webmm.errors import FreedArrayError, ProblemError, UnsupportedError, WebmmError
from webmm.kernels.gemm.naive import Naive
from webmm.problems.gemm import gemm


def test_use_after_free_raises(device):
    array = device.array(np.ones((2, 3), np.float32))
    array.free()
    for use in (array.numpy, lambda: array.storage, lambda: np.asarray(array)):
        with pytest.raises(FreedArrayError, match="this 2x3 float32 array was freed"):
            use()
    with device.empty((9,)) as other, pytest.raises(FreedArrayError):
        device.run(Naive(), gemm(1, 1, 1), other, array, other)
    assert "freed" in repr(array)
    assert array.shape == (2, 3), "the shape is still known"


def test_double_free_is_harmless(device):
    array = device.empty((4,))
    array.free()
    array.free()
    with device.empty((4,)) as other:
        other.free()


def test_context_manager_frees_even_after_an_error(device):
    with pytest.raises(ZeroDivisionError), device.empty((4,)) as array:
        raise ZeroDivisionError
    with pytest.raises(FreedArrayError):
        array.numpy()


def test_garbage_collection_frees(device):
    gc.collect()  # garbage of earlier tests
    array = device.empty((4,))
    view = array[1:]
    gone, before = weakref.ref(array), device.memory_stats().array_bytes
    del array
    gc.collect()
    assert gone() is None
    assert device.memory_stats().array_bytes == before, "a view keeps the buffer"
    del view
    gc.collect()
    assert device.memory_stats().array_bytes == before - 16


def test_a_launch_does_not_keep_its_arrays_alive(device):
    a, b, c = (device.empty((1,)) for _ in range(3))
    device.run(Naive(), gemm(1, 1, 1), a, b, c)
    buffers = [weakref.ref(array.storage.buffer) for array in (a, b, c)]
    launches = [array.storage.block.launches for array in (a, b, c)]
    assert all(launches)
    del a, b, c
    gc.collect()
    device.trim()
    assert not any(launches)
    assert all(buffer() is None for buffer in buffers), "something still holds a freed buffer"


def test_the_place_of_elements_cannot_be_set(device):
    """NumPy's shape could: strides would stay."""
    x = device.array(np.ones((3, 4), np.float32))
    for name, value in {"shape": (2, 6), "strides": (1, 1), "offset": 1}.items():
        with pytest.raises(AttributeError, match=name):
            setattr(x, name, value)
    assert x.sum(1).shape == (3,)


def test_attributes_of_an_array(device):
    with device.array([[1.0, 2.0, 3.0]], "f16") as array:
        assert isinstance(array, Array)
        assert (array.shape, array.size, array.nbytes, array.dtype.name) == ((1, 3), 3, 6, "float16")
        assert array.device is device
        assert "1x3 float16" in repr(array)
        assert np.asarray(array).dtype == np.float16
        assert np.asarray(array, np.float64).tolist() == [[1.0, 2.0, 3.0]]
        with pytest.raises(ValueError, match="copy=False is impossible"):
            array.__array__(copy=False)


# Sizes around every threshold of transfers: only whole words can be copied, small data is written directly, larger data
# goes through staging buffers of powers of two, and the largest in chunks.
BYTES = [2, 4, 6, 10, 16, 18, 2**16 - 2, 2**16, 2**16 + 2, DIRECT_WRITE - 2, DIRECT_WRITE, DIRECT_WRITE + 2]
BYTES += [LEAST - 2, LEAST, LEAST + 2, CHUNK - 2, CHUNK, CHUNK + 2, 2 * CHUNK + 6]


@pytest.mark.parametrize("nbytes", BYTES)
def test_round_trip(device, nbytes):
    data = np.arange(nbytes // 2, dtype=np.uint16).view(np.float16)  # every bit pattern, NaN among them
    with device.array(data) as array:
        assert array.numpy().tobytes() == data.tobytes()


def test_round_trip_of_several_chunks(device):
    data = np.random.default_rng(0).integers(0, 2**32, 10 * 2**20 + 3, np.uint32).view(np.float32)  # 40 MiB
    with device.array(data) as array, device.array(data[::-1]) as backwards:
        assert array.numpy().tobytes() == data.tobytes()
        assert backwards.numpy().tobytes() == data[::-1].tobytes()


def test_small_transfers_use_the_calling_thread(device, monkeypatch):
    monkeypatch.setattr(device.staging._pool, "submit", lambda *_: 1 / 0)
    data = np.arange(100, dtype=np.float32)
    with device.array(data) as array:
        assert np.array_equal(array.numpy(), data)
        assert array[5:6].numpy() == [5]


def test_transfers_do_not_use_the_engines_polling_thread(device, monkeypatch):
    # While wgpu-py's polling thread waits, no other thread can submit. Dawn has no such thread.
    if poller := getattr(device.wgpu_device, "_poller", None):
        monkeypatch.setattr(poller, "get_token", lambda: 1 / 0)
    with device.array(np.ones(4 * LEAST, np.float32)) as array:
        assert array.numpy().all()
        assert array[:3].numpy().all()


def test_several_arrays_are_uploaded_together(device):
    staging = Staging(device.guard, device.submissions, chunk=2**16, threads=5, depth=3)
    rng = np.random.default_rng(1)
    hosts = [
        rng.random((300, 401), np.float32),
        rng.integers(0, 256, DIRECT_WRITE + 3, np.uint8),
        rng.random(7, np.float32),
        rng.random((500, 300)).T,  # converted to float32
    ]
    arrays = [device.empty(x.shape, "uint8" if x.dtype == np.uint8 else "float32") for x in hosts]
    staging.upload(*(Upload(x, y.dtype, y.storage) for x, y in zip(hosts, arrays, strict=True)))
    assert all(np.array_equal(y.numpy(), x.astype(y.dtype)) for x, y in zip(hosts, arrays, strict=True))


def test_concurrent_transfers_with_few_staging_buffers(device):
    staging = Staging(device.guard, device.submissions, chunk=2**16, threads=5, depth=3)
    data = np.random.default_rng(1).integers(0, 256, 4 * LEAST + 5, np.uint8)
    with device.empty((LEAST + 2,)) as array:
        staging.upload(Upload(data, data.dtype, array.storage, offset=8))
        back = [np.zeros_like(data) for _ in range(3)]
        threads = [
            threading.Thread(target=staging.download, args=(array.storage, 8 + 4 * i, out.dtype, out[4 * i :]))
            for i, out in enumerate(back)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert all(np.array_equal(out[4 * i :], data[4 * i :]) for i, out in enumerate(back))
    staging.close()


def test_large_streamed_products_use_long_chunks(device, monkeypatch):
    sizes, cut = [], transfer._chunks
    monkeypatch.setattr(transfer, "_chunks", lambda *x: sizes.append(x[2]) or cut(*x))
    a = np.ones((1024, 1024), np.float32)
    monkeypatch.setattr(device, "memory", 6 * 2**20)  # too little for the whole product
    webmm.matmul(a, a, device=device)
    short = max(sizes)
    monkeypatch.setattr(streamed, "LONG", 1)
    assert np.all(webmm.matmul(a, a, device=device) == 1024)
    assert (short, max(sizes)) == (transfer.CHUNK, transfer.LONG_CHUNK)
    assert device.staging._long == 0


def test_a_failed_transfer_returns_its_staging_buffer():
    device = Device()  # has no staging buffers yet; not closed if the test fails, since closing would wait, too
    a, b = device.array(np.ones((8, 8), np.float32)), device.array(np.full((8, 8), 2, np.float32))
    found = {}

    def read(name, array):
        try:
            found[name] = array.numpy()[0, 0]
        except FreedArrayError:
            found[name] = "freed"

    readers = [threading.Thread(target=read, args=pair, daemon=True) for pair in (("a", a), ("b", b))]
    with device.guard.lock:  # held by a thread while it compiles
        readers[0].start()
        time.sleep(0.2)  # the first reader has the only buffer and waits for the lock
        readers[1].start()
        time.sleep(0.2)
        a.free()
    for reader in readers:
        reader.join(20)
        assert not reader.is_alive(), "it waits for a staging buffer that is never returned"
    assert found == {"a": "freed", "b": 2}
    device.close()


@pytest.mark.parametrize("cut", [np.s_[:, 1:-1], np.s_[::3, ::-1], np.s_[:7, None, ::2]], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_strided_transfers(device, cut, dtype):
    # Rows of a few bytes and of more than a piece, in whole words and half words.
    for shape in ((1000, 1003), (7, 300_002), (300_001, 4)):
        host = np.random.default_rng(2).standard_normal(shape)
        part = host[cut]
        with device.array(part, dtype) as array:
            assert np.array_equal(array.numpy(), part.astype(dtype))
            out = np.zeros_like(host)
            into = out[cut]
            assert device.download(array, into) is into
            assert np.array_equal(into, part.astype(dtype))
            assert np.count_nonzero(out) == np.count_nonzero(part.astype(dtype))


def test_a_transfer_after_a_failed_one_succeeds(device, monkeypatch):
    data = np.arange(3 * LEAST, dtype=np.float32)
    with device.array(data) as array:
        with monkeypatch.context() as broken:
            broken.setattr(np, "copyto", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                array.numpy()
            with pytest.raises(ZeroDivisionError):
                device.array(data)
        assert np.array_equal(array.numpy(), data)
        with device.array(data[::-1]) as other:
            assert np.array_equal(other.numpy(), data[::-1])


def test_freeing_an_array_during_a_transfer(device):
    # wgpu-native aborts the process if submitted work uses a destroyed buffer.
    data, failures = np.ones(4 * LEAST, np.float32), []

    def move(array, job):
        try:
            job(array)
        except Exception as error:
            failures.append(error)

    for i in range(20):
        array = device.array(data)
        job = device.download if i % 2 else lambda array: device.assign(array, data)
        mover, killer = threading.Thread(target=move, args=(array, job)), threading.Timer(i / 5000, array.free)
        for thread in (mover, killer):
            thread.start()
        for thread in (mover, killer):
            thread.join(60)
    assert {type(error) for error in failures} <= {FreedArrayError}
    assert device.array(data).numpy().all()


def test_any_strides_become_row_major(device):
    data = np.arange(24, dtype=np.float64).reshape(4, 6)
    for host in (data.T, data[::2, 1::2], data.astype(">f8"), np.asfortranarray(data)):
        with device.array(host, "float32") as array:
            assert np.array_equal(array.numpy(), host)


def test_new_arrays_are_zero(device):
    for dtype in ("float32", "float16"):
        with device.empty((33, 7), dtype) as array:
            assert not array.numpy().any()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.zeros((2, 2), complex), "complex128 is not supported; cast"),
        (np.array([None]), "object is not supported"),
        (np.array(["a"]), "is not supported"),
    ],
)
def test_unsupported_dtypes_are_refused(device, data, words):
    with pytest.raises(ProblemError, match=words):
        device.array(data)


def test_arrays_of_another_device_are_refused(device):
    with Device(device.info.index) as other, other.empty((1,)) as there, device.empty((1,)) as here:
        for arrays in ((there, here, here), (here, there, here), (here, here, there)):
            with pytest.raises(ProblemError, match="is on another device"):
                device.run(Naive(), gemm(1, 1, 1), *arrays)


def test_arrays_that_are_too_small_or_of_another_type_are_refused(device):
    with device.empty((6,)) as six, device.empty((5,)) as five, device.empty((6,), "float16") as halves:
        # A is 2×3, B 3×2, C 2×2
        device.run(Naive(), gemm(2, 2, 3), six, six, five)
        with pytest.raises(ProblemError, match="b has 5 elements; the problem 2x2x3 needs 6"):
            device.run(Naive(), gemm(2, 2, 3), six, five, five)
        with pytest.raises(ProblemError, match="a has 5 elements"):
            device.run(Naive(), gemm(2, 2, 3), five, six, six)
        with pytest.raises(ProblemError, match="c is float16; the problem expects float32"):
            device.run(Naive(), gemm(2, 2, 3), six, six, halves)


def test_arrays_of_a_closed_device_raise(device):
    other = Device(device.info.index)
    array = other.array(np.ones(3, np.float32))
    other.close()
    with pytest.raises(WebmmError):
        array.numpy()
    array.free()


def test_boolean_indices_are_refused(device):
    # NumPy copies for boolean indices: the result would be no view.
    with device.array(np.ones((3, 4), np.float32)) as array:
        for key in (True, (slice(None), False), np.True_):
            with pytest.raises(ProblemError, match="indexed by integers"):
                array[key]


def test_layouts_are_kept_for_equal_arguments_only(device):
    # Views of the same layout are computed once; True and 1.0 equal 1, but NumPy takes them for something else.
    x = device.array(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    host = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for _ in range(2):
        assert np.array_equal(x[1, 0:1].numpy(), host[1, 0:1])
        assert np.array_equal(x[1, :1, ::2].numpy(), host[1, :1, ::2])
        assert np.array_equal(x[1][..., 1].numpy(), host[1][..., 1])
        assert np.array_equal(x[np.int64(1)].numpy(), host[1])
        assert np.array_equal(x.swapaxes(1, 0).numpy(), host.swapaxes(1, 0))
        assert np.array_equal(x.transpose((1, 0, 2)).numpy(), x.transpose(1, 0, 2).numpy())
        assert np.array_equal(x.reshape((4, 6)).numpy(), host.reshape(4, 6))
        assert np.array_equal(x[1:].reshape(4, 3).numpy(), host[1:].reshape(4, 3))
        with pytest.raises(ProblemError, match="indexed by integers"):
            x[True, 0:1]
        with pytest.raises(TypeError):
            x.swapaxes(1.0, 0)
        with pytest.raises(TypeError):
            x.reshape((4.0, 6))


def test_views_of_a_freed_array_raise(device):
    array = device.array(np.ones((3, 4), np.float32))
    array.free()
    for view in (lambda: array.T, lambda: array[1:], lambda: array.reshape(-1), lambda: array.broadcast_to((2, 3, 4))):
        with pytest.raises(FreedArrayError):
            view()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_assigning_writes_only_the_view(device, dtype):
    with device.array(np.arange(8), dtype) as array, device.array(np.full(8, 9), dtype) as nines:
        for data in (nines[:3], np.full(3, 9)):
            if dtype == "float32":
                device.assign(array[:3], data)
            else:  # the third element ends within a 4-byte word
                with pytest.raises(ProblemError, match="whole"):
                    device.assign(array[:3], data)
        assert array.numpy()[3:].tolist() == [3, 4, 5, 6, 7]
        device.assign(array[:4], array[4:])  # within one buffer
        assert array.numpy().tolist() == [4, 5, 6, 7] * 2


def test_uploading_writes_only_the_view(device):
    with device.array(np.zeros(8, np.float32)) as array:
        device.upload(np.ones(2, np.float32), array[4:6])
        assert array.numpy().tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
        with pytest.raises(ProblemError, match="6 elements cannot fill"):
            device.upload(np.ones(6, np.float32), array[4:6])
        with pytest.raises(ProblemError, match="contiguous"):
            device.upload(np.ones(4, np.float32), array[::2])
    with device.array(np.zeros(8, np.float16)) as half:
        for within_a_word in (half[1:3], half[2:5]):
            with pytest.raises(ProblemError, match="multiples of four bytes"):
                device.upload(np.ones(within_a_word.shape, np.float16), within_a_word)


def test_a_deep_copy_has_its_own_buffer(device):
    with device.array(np.arange(6).reshape(2, 3), "float32") as array, copy.deepcopy(array.T) as other:
        assert other.storage is not array.storage
        np.testing.assert_array_equal(other.numpy(), array.numpy().T)


@pytest.mark.parametrize("shape", [5, (2.5,), "ab", (2, None), (-1,)])
def test_invalid_shapes_are_refused(device, shape):
    with pytest.raises(ProblemError, match="shape"):
        device.empty(shape)


def test_huge_sizes_are_refused(device):
    with pytest.raises(UnsupportedError, match="max-buffer-size"):
        device.empty((2**40, 2**40))


@pytest.mark.parametrize("name", ["float32", "float16", "int32", "uint8"])
def test_dtype_is_a_numpy_dtype(device, name):
    x = device.empty((3, 4), name)
    assert x.dtype == np.dtype(name) == x.T[1:].dtype
    assert isinstance(x.dtype, np.dtype)
    assert np.empty_like(x.numpy(), dtype=x.dtype).dtype == x.numpy().dtype
    assert device.array(np.zeros(3, x.dtype)).element is x.element


def test_reshape_is_a_view_where_numpy_has_one(device):
    """For random strides of a random shape: the same view as NumPy's, or a copy where NumPy makes one."""
    rng, copies = np.random.default_rng(0), 0
    whole = np.arange(720, dtype=np.float32)
    array = device.array(whole)
    for _ in range(300):
        shape = rng.permutation([2, 3, 4, 5, 6, 1])
        key = tuple(
            slice(None, None, rng.choice([1, 1, 1, 2, -1])) if rng.random() < 0.3 else slice(None) for _ in shape
        )
        axes = rng.permutation(6) if rng.random() < 0.5 else range(6)
        host, view = (x.reshape(tuple(shape)).transpose(*axes)[key] for x in (whole, array))
        lengths = tuple(rng.permutation(host.shape)) if rng.random() < 0.3 else _other_lengths(rng, host.shape)
        expected = host.reshape(lengths)
        if np.shares_memory(expected, whole):
            got = view.reshape(lengths, copy=False)
            assert got.shape == expected.shape
            places = [(n, s * 4) for n, s in zip(got.shape, got.strides, strict=True) if n > 1]
            assert places == [(n, s) for n, s in zip(expected.shape, expected.strides, strict=True) if n > 1]
            assert got.offset * 4 == expected.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        else:
            with pytest.raises(ProblemError, match="needs a copy"):
                view.reshape(lengths, copy=False)
            copies += 1
            if copies < 4:
                np.testing.assert_array_equal(view.reshape(lengths).numpy(), expected)
    assert 30 < copies < 270


def _other_lengths(rng, shape):
    """Return another shape of as many elements: some neighbours merged, some axes divided by two."""
    lengths = [1]
    for n in map(int, shape):
        if rng.random() < 0.4:
            lengths[-1] *= n
        else:
            lengths += [2, n // 2] if n % 2 == 0 and rng.random() < 0.4 else [n]
    return tuple(lengths)


def test_heads_are_split_and_merged_on_the_device(device, monkeypatch):
    host = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    x = device.array(host)
    heads = x.reshape(2, 3, 4, 2).swapaxes(1, 2)
    assert heads.storage is x.storage
    assert heads.swapaxes(-3, 2).reshape(2, 3, 8).storage is x.storage
    assert x.reshape(-1, copy=True).storage is not x.storage
    parts = {dtype: device.array(host > 0, dtype).T for dtype in ("float16", "bool", "float64")}
    for tested in (False, True):
        if tested:  # shaders that are new are; from then on, nothing but float64 passes through the host
            monkeypatch.setattr(webmm.Array, "numpy", None)
        moved = (heads * 2).swapaxes(1, 2)
        got = moved.reshape(2, 3, -1)
        assert got.storage is not moved.storage
        np.testing.assert_array_equal(device.download(got), host * 2)
        norms = webmm.rms_norm(moved, eps=0)  # of rows that no view has
        rows = host.reshape(2, 3, 4, 2)
        expected = rows / np.sqrt((rows**2).mean(-1, keepdims=True))
        np.testing.assert_allclose(device.download(norms), expected, rtol=1e-5)
        for part in parts.values():
            np.testing.assert_array_equal(device.download(part.reshape(-1)).astype(bool), (host > 0).T.reshape(-1))
        parts.pop("float64", None)
    with pytest.raises(ProblemError, match="cannot reshape"):
        part.reshape(7, -1)
    with pytest.raises(ProblemError, match="out of bounds"):
        x.swapaxes(0, 3)
