// A shader without a template for another op than the product: y[i] = the sum of row i of x, which is m × n.
//
//     webmm kernel check examples/row_sums.wgsl --problem reduce:sum --uniform m,n --workgroup 64 --grid m/64

struct Sizes {
    m: u32,
    n: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3u) {
    if (at.x >= sizes.m) {
        return;
    }
    var sum = 0.0;
    for (var k = 0u; k < sizes.n; k++) {
        sum += x[at.x * sizes.n + k];
        //dbg(ACC, at.x, 0u, k, sum);
    }
    y[at.x] = sum;
}
