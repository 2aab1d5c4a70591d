// one_by_one: y[i, j] = x[i, 0] + … + x[i, j], one invocation per row.
//
// Storage: x and y (rows, length), dense; sums in f32.
// Shapes: any. Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = (workgroup.x + workgroup.y * grid.x) * SIZE + local_index;
    if (row >= params.rows) {
        return;
    }
    var sum = 0.0;
    for (var k = 0u; k < params.length; k++) {
        let x_reg = {{ matrix.element("x", "row * params.length + k") }};
        sum += x_reg;
        dbg(LOADED, row, 0u, k, x_reg);
        dbg(ACC, row, 0u, k, sum);
        {{ out.store("row * params.length + k", "sum") }}
    }
}
