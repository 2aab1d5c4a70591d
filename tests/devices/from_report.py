"""A virtual device from a report of vulkan.gpuinfo.org: python tests/devices/from_report.py REPORT.json ADDRESS DATE.

A report says what a driver offers through Vulkan. What WebGPU offers on it follows from that as in wgpu
(wgpu-hal/src/vulkan/adapter.rs, `to_wgpu_limits` and `to_wgpu`, https://github.com/gfx-rs/wgpu): storage bindings of at
most 2³¹ bytes, buffers of less than 2³¹ on Linux and Android except NVIDIA's, float16 if buffers can hold it, subgroups
with all operations in compute and fragment shaders, if the driver states their sizes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NVIDIA, LARGEST = 0x10DE, 2**31
KINDS = {1: "IntegratedGPU", 2: "DiscreteGPU", 4: "CPU"}
MIXED = ("windows", "osx", "macos", "ios")  # systems whose drivers have buffers of 2 GiB and more
COMPUTE_AND_FRAGMENT = 0x30
SHARED = 0b111111  # basic, vote, arithmetic, ballot, shuffle, shuffle relative


def device(report: dict[str, Any], address: str, date: str) -> dict[str, Any]:
    """Return the virtual device of a report that was read at `address` on `date`."""
    about, limits, offers = report["properties"], report["properties"]["limits"], _stated(report)
    small = report["environment"]["name"] not in MIXED and about["vendorID"] != NVIDIA
    sizes = [min(int(offers.get("maxBufferSize") or 2**32), 2**63 - 1), *([LARGEST - 1] if small else [])]
    x, y, z = limits["maxComputeWorkGroupSize"]
    least, most = (int(offers.get(f"{end}SubgroupSize") or 0) for end in ("min", "max"))
    subgroups = about.get("subgroupProperties", {})
    shared = subgroups.get("supportedOperations", 0) & SHARED == SHARED
    everywhere = subgroups.get("supportedStages", 0) & COMPUTE_AND_FRAGMENT == COMPUTE_AND_FRAGMENT
    stores = ("shaderFloat16", "storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess")
    features = {
        "shader-f16": all(map(offers.get, stores)),
        "shader-f64": bool(offers.get("shaderFloat64")),
        "subgroup": bool(least and shared and everywhere),
    }
    return {
        "name": about["deviceName"],
        "kind": KINDS.get(about["deviceType"], "Unknown"),
        "driver": about["driverVersionText"],
        "limits": {
            "max-compute-invocations-per-workgroup": limits["maxComputeWorkGroupInvocations"],
            "max-compute-workgroup-size-x": x,
            "max-compute-workgroup-size-y": y,
            "max-compute-workgroup-size-z": z,
            "max-compute-workgroup-storage-size": limits["maxComputeSharedMemorySize"],
            "max-compute-workgroups-per-dimension": min(limits["maxComputeWorkGroupCount"]),
            "max-storage-buffer-binding-size": min(limits["maxStorageBufferRange"], LARGEST) // 4 * 4,
            "max-buffer-size": min(sizes),
            "max-storage-buffers-per-shader-stage": limits["maxPerStageDescriptorStorageBuffers"],
            "max-storage-textures-per-shader-stage": limits["maxPerStageDescriptorStorageImages"],
            "max-texture-dimension-2d": limits["maxImageDimension2D"],
            "max-texture-array-layers": limits["maxImageArrayLayers"],
        },
        "features": sorted(name for name, offered in features.items() if offered),
        "subgroup_sizes": [least, most] if features["subgroup"] else [],
        "source": {"address": address, "date": date},
    }


def _stated(report: dict[str, Any]) -> dict[str, Any]:
    """Return the features and properties that a report has in several places, by name."""
    found: dict[str, Any] = dict(report["features"])
    for part in (part for name, part in report.items() if name.startswith("core1")):
        found |= {**part.get("features", {}), **part.get("properties", {})}
    extended = report.get("extended", {})
    found |= {each["name"]: each["supported"] for each in extended.get("devicefeatures2", ())}
    return found | {each["name"]: each["value"] for each in extended.get("deviceproperties2", ())}


if __name__ == "__main__":
    file, *source = sys.argv[1:]
    print(json.dumps(device(json.loads(Path(file).read_text(encoding="utf-8")), *source), indent=1))
