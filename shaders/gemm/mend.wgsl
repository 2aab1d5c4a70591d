// mend: in float32, the elements of C that matrix_unit_high could not compute within the bound.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; doubts (batch, m, n), one bit per element, rows
// padded to whole words.
// Last dispatch of matrix_unit_high. A workgroup reads {{ kernel.invocations }} words of doubts, and returns if no bit
// is set. For each word with bits, the invocations share the inner dimension of its 32 columns, or of one column at a
// time if few bits are set.
// Shapes: any. Workgroup memory: {{ kernel.workgroup_bytes }} bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

const INVOCATIONS: u32 = {{ kernel.invocations }}u;
const WORDS: u32 = INVOCATIONS; // words of doubts per workgroup
const FEW: u32 = 2u; // bits of a word up to which columns are computed one at a time

var<workgroup> any_doubts: atomic<u32>; // bitwise or of the workgroup's words
var<workgroup> doubt: u32;
var<workgroup> sums: array<f32, INVOCATIONS>;

{{ matrix.load_a() }}
{{ matrix.load_b() }}
{{ matrix.store_c() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    let per_row = (params.n + 31u) / 32u; // words
    let words = params.m * per_row;
    let first = (workgroup.x + workgroup.y * grid.x) * WORDS;
    let base = workgroup.z * words;
    if (local_index == 0u) {
        atomicStore(&any_doubts, 0u); // Mesa 22.3 does not clear atomics
    }
    workgroupBarrier(); // it is zero before anyone sets bits
    if (first + local_index < words) {
        atomicOr(&any_doubts, doubts[base + first + local_index]);
    }
    workgroupBarrier(); // all words are combined before anyone reads the result
    if (local_index == 0u) {
        doubt = atomicLoad(&any_doubts);
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
            let within = select(local_index % 32u, firstTrailingBit(bits), few);
            let col = word % per_row * 32u + within;
            let wanted = ((bits >> within) & 1u) == 1u; // an H200's driver (580.159.04) gets extractBits() wrong here
            var sum = 0.0;
            if (wanted) {
                for (var k = local_index / columns; k < params.k; k += INVOCATIONS / columns) {
                    sum = fma(load_a(a_base, row, k), load_b(b_base, k, col), sum);
                }
            }
            sums[local_index] = sum;
            for (var half = INVOCATIONS / 2u; half >= columns; half /= 2u) {
                workgroupBarrier(); // the partial sums are complete before they are added
                if (local_index < half) {
                    sums[local_index] += sums[local_index + half];
                }
            }
            if (wanted && local_index < columns) {
                store_c(c_base, row, col, sums[local_index]); // no other invocation has changed it since
            }
            workgroupBarrier(); // everyone is done with the sums before they are overwritten
            bits = select(0u, bits & (bits - 1u), few);
        }
    }
}
