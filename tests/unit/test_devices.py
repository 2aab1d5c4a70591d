"""Devices never seen: each states its source, has a kernel for every op, and no choice exceeds one of its limits."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from tests.devices import from_report, plans
from webmm.kernels.base import features
from webmm.kernels.elementwise.map import Map
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.problems import OPS

LEAST_DEVICES = 12
MINIMUMS = ("webgpu-core", "webgpu-compatibility")


@pytest.fixture(scope="module")
def planned():
    return plans.plan(every=5)


def exceeded(kernel, problem, able):
    """Return the names of limits and features of a device that the kernel's shaders do not respect."""
    need = {}
    for step in kernel.dispatches:
        x, y, z = step.workgroup_size
        kinds = [binding.type for binding in step.bindings(step.specialise(problem))]
        for limit, value in {
            "max-compute-workgroup-size-x": x,
            "max-compute-workgroup-size-y": y,
            "max-compute-workgroup-size-z": z,
            "max-compute-invocations-per-workgroup": x * y * z,
            "max-compute-workgroup-storage-size": step.workgroup_bytes_for(problem),
            "max-compute-workgroups-per-dimension": max(step.dispatch(problem)),
            "max-storage-buffers-per-shader-stage": sum(kind.endswith("storage") for kind in kinds),
            "max-storage-textures-per-shader-stage": sum(kind.endswith("-only") for kind in kinds),
        }.items():
            need[limit] = max(need.get(limit, 0), value)
    sizes = [extent.nbytes for extent in problem.buffers()]
    for each in kernel.scratch(problem):
        for nbytes, limit, _ in each.needs():
            need[limit] = max(need.get(limit, 0), nbytes)
    for limit in ("max-storage-buffer-binding-size", "max-buffer-size"):
        need[limit] = max(need.get(limit, 0), *sizes)
    needed = {feature for step in kernel.dispatches for feature in features(step, problem)}
    lanes = max(step.subgroup for step in kernel.dispatches)
    wide = [f"subgroups of {lanes}"] if lanes > able.subgroup_size else []
    beyond = [limit for limit, value in need.items() if value > able.limits[limit]]
    return [*beyond, *sorted(needed - able.features), *wide]


def test_every_device_states_its_source():
    assert len(plans.NAMES) >= LEAST_DEVICES + len(MINIMUMS)
    assert set(MINIMUMS) < set(plans.NAMES)
    for name in plans.NAMES:
        source = plans.described(name)["source"]
        assert source["address"].startswith("https://"), name
        assert datetime.date.fromisoformat(source["date"]) > datetime.date(2025, 1, 1), name


def test_adapters_offer_the_minimum_of_webgpu():
    """A typing error in a file would show, except where an adapter is known to be below core."""
    least = plans.described("webgpu-compatibility")["limits"]
    for name in plans.NAMES:
        limits = plans.described(name)["limits"]
        assert limits.keys() == least.keys()
        assert [limit for limit in limits if limits[limit] < least[limit]] == [], name


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
def test_every_op_has_a_kernel_and_no_choice_exceeds_a_limit(planned, every):
    planned = planned if every > 1 else plans.plan()
    assert all(len(sizes) == 20 for _, sizes in plans.MADE.values())
    assert set(planned) == {(kind, size) for kind, (_, sizes) in plans.MADE.items() for size in sizes}
    assert {problem.op for chosen in planned.values() for problem, _ in chosen.values()} == set(OPS)
    able = {name: plans.device(name).capabilities for name in plans.NAMES}
    wrong = [
        (name, str(problem), str(kernel), beyond)
        for chosen in planned.values()
        for name, (problem, kernel) in chosen.items()
        if (beyond := exceeded(kernel, problem, able[name]))
    ]
    assert wrong == []


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
def test_a_kernel_has_subgroups_that_suit_it_whatever_size_a_driver_chooses(every):
    plans_of = plans.plan_of_lanes(every)
    assert {(32, 64), (64, 32), (8, 32), (32, 8), (16, 16)} <= plans_of.keys()
    exchanging = 0
    for (likely, actual), planned in plans_of.items():
        for (kind, _), chosen in planned.items():
            for name, (problem, kernel) in chosen.items():
                able = dataclasses.replace(plans.device(name, likely).capabilities, subgroup_size=actual)
                assert exceeded(kernel, problem, able) == [], (name, kind, likely, actual, str(kernel))
                exact = [step.subgroup for step in kernel.dispatches if step.exact]
                assert set(exact) <= {actual}, (name, kind, likely, actual, str(kernel))
                exchanging += any(step.subgroup for step in kernel.dispatches)
    assert exchanging > 50


def test_a_choice_beyond_a_limit_is_found():
    (made, _), (reduced, _), (mapped, _) = (plans.MADE[kind] for kind in ("float32", "sums", "GELU"))
    small, core = (plans.device(name).capabilities for name in reversed(MINIMUMS))
    wide = "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x"
    assert set(exceeded(Map(), mapped((64, 64, 1)), small)) == set(wide)
    assert exceeded(Map(128), mapped((64, 64, 1)), small) == []
    assert exceeded(Pipelined(bm=128, bn=128, bk=32), made((512, 512, 512)), core) == [
        "max-compute-workgroup-storage-size"
    ]
    tiles = RowTiles(32, 8, 2, "subgroup")
    assert exceeded(tiles, reduced((64, 64, 1)), core) == ["subgroups of 8"]
    assert exceeded(Map(), mapped((2**25 + 4, 1, 1)), core) == ["max-storage-buffer-binding-size"]


def test_the_page_is_current(planned):
    assert plans.PAGE.read_text(encoding="utf-8") == plans.page(planned)


def test_a_report_becomes_a_device():
    """The parts of a report that count, and wgpu's rules: small buffers on Linux, float16 only if buffers hold it."""
    limits = {"maxComputeWorkGroupSize": [256, 128, 64], "maxComputeWorkGroupInvocations": 256}
    limits |= {"maxComputeSharedMemorySize": 16384, "maxComputeWorkGroupCount": [2**31 - 1, 65535, 65535]}
    limits |= {"maxStorageBufferRange": 2**32 - 1, "maxPerStageDescriptorStorageBuffers": 8}
    limits |= {"maxPerStageDescriptorStorageImages": 4, "maxImageDimension2D": 8192, "maxImageArrayLayers": 256}
    report = {
        "environment": {"name": "android"},
        "features": {"shaderFloat64": 0},
        "core12": {"features": {"shaderFloat16": True}},
        "core13": {"properties": {"minSubgroupSize": 16, "maxSubgroupSize": 32, "maxBufferSize": 2**33}},
        "extended": {"devicefeatures2": [{"name": "storageBuffer16BitAccess", "supported": True}]},
        "properties": {
            **{"deviceName": "a GPU", "deviceType": 1, "driverVersionText": "1.0", "vendorID": 5, "limits": limits},
            "subgroupProperties": {"supportedOperations": 0xFF, "supportedStages": 0x30},
        },
    }
    device = from_report.device(report, "https://example.org", "2025-05-12")
    assert device["features"] == ["subgroup"]
    assert (device["kind"], device["subgroup_sizes"]) == ("IntegratedGPU", [16, 32])
    assert device["limits"]["max-storage-buffer-binding-size"] == 2**31
    assert device["limits"]["max-buffer-size"] == 2**31 - 1
    assert device["limits"]["max-compute-workgroups-per-dimension"] == 65535
    report["extended"]["devicefeatures2"].append({"name": "uniformAndStorageBuffer16BitAccess", "supported": 1})
    report["environment"]["name"], report["core13"]["properties"]["minSubgroupSize"] = "windows", None
    device = from_report.device(report, "https://example.org", "2025-05-12")
    assert (device["features"], device["subgroup_sizes"]) == (["shader-f16"], [])
    assert device["limits"]["max-buffer-size"] == 2**33
