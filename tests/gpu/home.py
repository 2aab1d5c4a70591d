"""A program in plain wgpu-py that runs stages from the JSON of `webmm shader`; it imports nothing of webmm."""

import math
import struct

import numpy as np
import wgpu

FORMATS = {"u32": "I", "i32": "i", "f32": "f", "f64": "d"}
KINDS = ("uniform", "storage", "read-only-storage")


def evaluated(formula, sizes):
    """Return the value of a rule."""
    return int(eval(formula, {"ceil": math.ceil, "min": min, "max": max}, {"m*n": 0, **sizes}))


def holds(valid_for, sizes):
    """Tell whether a text that is `valid_for` some sizes may be used for these."""
    for name, rule in valid_for.items():
        size = evaluated(name, sizes) if "*" in name else sizes[name]
        if "where" in rule and not eval(rule["where"], {}, dict(sizes)):
            continue
        equal = rule.get("equals", size)
        if (
            size % rule.get("multiple_of", 1)
            or size < rule.get("at_least", 0)
            or size > rule.get("at_most", size)
            or size != (sizes[equal] if isinstance(equal, str) else equal)
        ):
            return False
    return True


def packed(params, values):
    """Return the bytes of a uniform whose members have these values."""
    data = bytearray(params["size"])
    for member in params["members"]:
        kind = member["type"]
        scalar, count = (kind[5:-1], int(kind[3])) if kind.startswith("vec") else (kind, 1)
        value = values[member["name"]]
        struct.pack_into(f"<{count}{FORMATS[scalar]}", data, member["offset"], *(value if count > 1 else (value,)))
    return bytes(data)


def workgroups(grid, sizes):
    """Return the workgroups (x, y, z) of a grid's rule."""
    known = dict(sizes)
    for name in ("count", "y", "x", "z"):
        if name in grid:
            known[name] = evaluated(grid[name], known)
    return known["x"], known["y"], known["z"]


class Home:
    """A GPU, and the pipelines that were made on it."""

    def __init__(self):
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        wanted = {"shader-f16", "shader-f64", "subgroup"}
        self.features = wanted & set(adapter.features)
        storage = adapter.limits["max-compute-workgroup-storage-size"]
        names = ("max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x")
        limits = {name: adapter.limits[name] for name in names}
        limits["max-compute-workgroup-storage-size"] = storage
        self.device = adapter.request_device_sync(required_features=list(self.features), required_limits=limits)
        self.pipelines = {}

    def pipeline(self, dispatch):
        """Return the pipeline of a dispatch, compiled once for each text."""
        if dispatch["wgsl"] not in self.pipelines:
            entries = []
            for each in dispatch["bindings"]:
                texture = {"access": each["type"], "format": "rgba32float", "view_dimension": "2d-array"}
                kind = {"buffer": {"type": each["type"]}} if each["type"] in KINDS else {"storage_texture": texture}
                entries.append({"binding": each["binding"], "visibility": wgpu.ShaderStage.COMPUTE, **kind})
            layout = self.device.create_bind_group_layout(entries=entries)
            module = self.device.create_shader_module(code=dispatch["wgsl"])
            self.pipelines[dispatch["wgsl"]] = (
                layout,
                self.device.create_compute_pipeline(
                    layout=self.device.create_pipeline_layout(bind_group_layouts=[layout]),
                    compute={"module": module, "entry_point": dispatch["entry_point"]},
                ),
            )
        return self.pipelines[dispatch["wgsl"]]

    def buffer(self, data, nbytes=0):
        """Return a buffer with `data`, whose size is rounded up to 16 bytes."""
        raw = np.full(-(-max(len(data), nbytes) // 16) * 16, 0xA5, np.uint8)
        raw[: len(data)] = np.frombuffer(data, np.uint8)
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.UNIFORM
        return self.device.create_buffer_with_data(data=raw, usage=usage)

    def texture(self, rules, sizes):
        """Return a scratch texture whose sides follow rules."""
        size = [evaluated(rules[side], sizes) for side in ("width", "height", "layers")]
        usage = wgpu.TextureUsage.STORAGE_BINDING
        return self.device.create_texture(size=size, format="rgba32float", usage=usage).create_view(
            dimension="2d-array"
        )

    def run(self, stage, values, contents):
        """Run a stage; return the contents of its buffers by name.

        `stage` is the JSON; `values` are those of the uniform's members and the batch, `contents` the bytes of the
        operands, in buffers with as many elements as the rules say.
        """
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        for name, value in values.items():
            if isinstance(value, tuple):
                sizes[name] = type("Vector", (), dict(zip("xyzw", value, strict=False)))
        sizes |= dict(zip("xyz", workgroups(stage["grid"], sizes), strict=True))
        bound = {}
        for each in stage["buffers"]:
            nbytes = evaluated(each["rule"], sizes) * ITEMSIZES[each["dtype"]]
            data = contents.get(each["name"], b"")
            assert len(data) in (0, nbytes), each["name"]
            bound[each["name"]] = self.buffer(data, nbytes)
        for each in stage["scratch"]:
            texture = isinstance(each["rule"], dict)
            bound[each["name"]] = (
                self.texture(each["rule"], sizes) if texture else self.buffer(b"", evaluated(each["rule"], sizes))
            )
        encoder = self.device.create_command_encoder()
        for dispatch in stage["dispatches"]:
            layout, pipeline = self.pipeline(dispatch)
            uniform = self.buffer(packed(dispatch["params"], values))
            resources = {**bound, "params": uniform}
            entries = []
            for each in dispatch["bindings"]:
                found = resources[each["name"]]
                whole = {"buffer": found, "offset": 0, "size": getattr(found, "size", 0)}
                entries.append({"binding": each["binding"], "resource": whole if each["type"] in KINDS else found})
            compute = encoder.begin_compute_pass()
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, self.device.create_bind_group(layout=layout, entries=entries))
            compute.dispatch_workgroups(*workgroups(dispatch["grid"], sizes))
            compute.end()
        self.device.queue.submit([encoder.finish()])
        return {
            each["name"]: bytes(self.device.queue.read_buffer(bound[each["name"]]))
            for each in stage["buffers"]
            if each["written"]
        }


ITEMSIZES = {
    **{"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int32": 4, "uint32": 4},
    **{"int8": 1, "uint8": 1, "bool": 1},
}
