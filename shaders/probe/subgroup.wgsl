// subgroup: how many lanes share a broadcast, told by running one.
//
// Each invocation writes the subgroup's size, its own lane, and what it hears from the subgroup's first two lanes.

{% if dialect == "tint" %}
enable subgroups;

{% endif %}
const INVOCATIONS: u32 = {{ invocations }}u; // of the one workgroup

struct Heard {
    size: u32,
    lane: u32,
    first: u32,
    second: u32,
}

@group(0) @binding(0) var<storage, read_write> heard: array<Heard, INVOCATIONS>;

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    heard[index] = Heard(size, lane, subgroupBroadcast(index, 0u), subgroupBroadcast(index, 1u));
}
