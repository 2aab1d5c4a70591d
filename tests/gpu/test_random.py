"""Random shapes, layouts and tile sizes, drawn by Hypothesis: the same ones on every run."""

import functools

from hypothesis import given, settings
from hypothesis import strategies as st
from products import check, other_stages, view

from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.gemm.vectorized import Vectorized

sizes = st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 4, 8, 16, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129]))
gaps = st.tuples(*[st.sampled_from([0, 0, 1, 3, 4, 8])] * 3)
layouts = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["float32", "float16"]),
        "out_dtype": st.sampled_from([None, None, "float32", "float16"]),
        "batch": st.sampled_from([1, 1, 2, 3]),
        "ta": st.booleans(),
        "tb": st.booleans(),
        "pads": gaps,
        "offsets": gaps,
    }
)


@functools.cache
def runnable(device, cls):
    """Return the settings of the stage that the device can run, but for those that take a CPU seconds to compile."""
    problem = view(1, 1, 1)
    kernels = [kernel for kernel in cls.space() if kernel.check(problem, device.capabilities) is None]
    return [each for each in kernels if not issubclass(cls, RegisterTiled) or each.tm * each.tn * each.unroll <= 64]


def examples(cls):
    """Return the number of examples: each compiles another shader."""
    return 2 if issubclass(cls, RegisterTiled) else 4 if issubclass(cls, Vectorized) else 8


@other_stages(0, 4)  # the others: test_tunables.py
def test_any_shape_layout_and_tile(device, cls):
    kernels = runnable(device, cls)
    assert kernels

    @settings(max_examples=examples(cls))
    @given(st.data())
    def check_drawn(data):
        kernel = data.draw(st.sampled_from(kernels))
        layout = data.draw(layouts)
        if "shader-f16" not in device.capabilities.features:
            layout |= {"dtype": "float32", "out_dtype": None}
        problem = view(*(data.draw(sizes) for _ in range(3)), **layout)
        check(device, kernel, problem)

    check_drawn()
