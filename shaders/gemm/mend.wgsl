// mend: the elements of C that matrix units could not compute within the bound, in float32.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; doubts (batch, m, n), a bit each, rows of whole
// words. A workgroup looks at {{ kernel.invocations }} words, and ends at once where none has a bit. For one that has,
// its invocations share the inner dimension of 32 columns at a time, or of one where few are wanted.
// Shapes: any. Workgroup memory: {{ kernel.workgroup_bytes }} bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

const LANES: u32 = {{ kernel.invocations }}u;
const WORDS: u32 = LANES; // of doubts, for a workgroup
const FEW: u32 = 2u; // columns of a word

var<workgroup> together: atomic<u32>; // all bits of all words
var<workgroup> doubt: u32;
var<workgroup> sums: array<f32, LANES>;

{{ matrix.load_a() }}
{{ matrix.load_b() }}
{{ matrix.store_c() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let per_row = (params.n + 31u) / 32u; // words
    let words = params.m * per_row;
    let first = (workgroup.x + workgroup.y * grid.x) * WORDS;
    let base = workgroup.z * words;
    if (lane == 0u) {
        atomicStore(&together, 0u); // Mesa 22.3 does not clear what atomics work on
    }
    workgroupBarrier(); // it is zero before anyone adds to it
    if (first + lane < words) {
        atomicOr(&together, doubts[base + first + lane]);
    }
    workgroupBarrier(); // all words are in it before anyone looks
    if (lane == 0u) {
        doubt = atomicLoad(&together);
    }
    if (workgroupUniformLoad(&doubt) == 0u) {
        return;
    }
{{ matrix.bases() }}
    for (var word = first; word < min(first + WORDS, words); word++) {
        var bits = doubts[base + word];
        let row = word / per_row;
        let few = countOneBits(bits) <= FEW;
        let columns = select(32u, 1u, few);
        while (bits != 0u) {
            let within = select(lane % 32u, firstTrailingBit(bits), few);
            let col = word % per_row * 32u + within;
            let wanted = ((bits >> within) & 1u) == 1u; // an H200's driver (580.159.04) gets extractBits() wrong here
            var sum = 0.0;
            if (wanted) {
                for (var k = lane / columns; k < params.k; k += LANES / columns) {
                    sum = fma(load_a(a_base, row, k), load_b(b_base, k, col), sum);
                }
            }
            sums[lane] = sum;
            for (var half = LANES / 2u; half >= columns; half /= 2u) {
                workgroupBarrier(); // the parts are there before they are added up
                if (lane < half) {
                    sums[lane] += sums[lane + half];
                }
            }
            if (wanted && lane < columns) {
                store_c(c_base, row, col, sums[lane]); // no other lane has changed it since
            }
            workgroupBarrier(); // all are done before the next ones overwrite them
            bits = select(0u, bits & (bits - 1u), few);
        }
    }
}
