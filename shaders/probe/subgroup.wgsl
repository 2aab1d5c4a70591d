// subgroup: finds how many lanes share a broadcast, by running one.
//
// Each invocation writes the subgroup's size, its lane, and the indices that it receives from the first two lanes.

{% if dialect == "tint" %}
enable subgroups;
{% if pinned %}
enable subgroup_size_control;
{% endif %}

{% endif %}
const INVOCATIONS: u32 = {{ invocations }}u; // in the only workgroup

struct Heard {
    size: u32,
    lane: u32,
    first: u32,
    second: u32,
}

@group(0) @binding(0) var<storage, read_write> heard: array<Heard, INVOCATIONS>;

@compute @workgroup_size(INVOCATIONS){% if pinned %} @subgroup_size({{ pinned }}){% endif %}

fn main(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    heard[local_index] = Heard(size, lane, subgroupBroadcast(local_index, 0u), subgroupBroadcast(local_index, 1u));
}
