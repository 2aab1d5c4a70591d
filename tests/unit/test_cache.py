"""What is kept of many measurements."""

import dataclasses

from webmm.choose import tuned
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.split_k import SplitK
from webmm.records import Record

RECORD = Record("gemm", "pipelined", 512, 512, 512, 1, "float32", "wgpu", "a", "Vulkan", "1", "0", Pipelined().config)


def divided(us):
    return dataclasses.replace(RECORD, kernel="split_k", config=SplitK(splits=4).config, median_us=us)


def test_memory_between_dispatches_must_be_worth_it():
    plain = dataclasses.replace(RECORD, median_us=100.0)
    for us, kept in ((99.0, plain), (97.0, divided(97.0))):
        for records in ([plain, divided(us)], [divided(us), plain]):
            assert tuned.fastest(records) == [kept]


def test_what_failed_or_is_no_kernel_is_not_kept():
    numpy = dataclasses.replace(RECORD, kernel="cpu", config={}, median_us=1.0)
    assert tuned.fastest([numpy, dataclasses.replace(RECORD, status="incorrect")]) == []
