// mend: in float32, the elements of C that matrix_unit_high could not compute within the bound.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; doubts (batch, m, n), one bit per element, rows
// padded to whole words.
// Last dispatch of matrix_unit_high. Each invocation reads a word of doubts; the workgroup returns if no bit is set.
// For each word with bits, the invocations share the inner dimension of its 32 columns, or of one column at a time if
// few bits are set. Doubts often fill a row or a column; therefore the words of a workgroup are from different ones:
// 7,328 words with doubts of 1024×2048×4096 took 11.7 ms on an H200 with 256 consecutive words per workgroup and one
// load of A and B at a time, and take 0.65 so.
{#
  No extractBits() here: with NVIDIA's driver some bits read as set that were not, and some elements were missed; a
  shift is right.
#}
// Workgroup memory: {{ kernel.workgroup_bytes }} bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

const INVOCATIONS: u32 = {{ kernel.invocations }}u;
const FEW: u32 = {{ kernel.few }}u; // bits of a word up to which columns are computed one at a time

var<workgroup> number: atomic<u32>; // of words with a bit
var<workgroup> count: u32; // the same
var<workgroup> found: array<u32, INVOCATIONS>; // these words
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
    let workgroups = grid.x * grid.y;
    let base = workgroup.z * words;
    if (local_index == 0u) {
        atomicStore(&number, 0u); // Mesa 22.3 does not clear atomics
    }
    workgroupBarrier(); // it is zero before anyone adds to it
    // One word from each block of as many words as there are workgroups, at another place in each
    let place = (workgroup.x + workgroup.y * grid.x + local_index * 37u) % workgroups;
    let own = local_index * workgroups + place;
    if (own < words && doubts[base + own] != 0u) {
        found[atomicAdd(&number, 1u)] = own;
    }
    workgroupBarrier(); // all words are known before anyone reads their number
    if (local_index == 0u) {
        count = atomicLoad(&number);
    }
    let last = workgroupUniformLoad(&count);
{{ matrix.bases() }}
    for (var i = 0u; i < last; i++) {
        let word = workgroupUniformLoad(&found[i]);
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
                let step = INVOCATIONS / columns;
                var k = local_index / columns;
{% for count in (kernel.loads, 1) %}
                for (; k {% if count > 1 %}+ {{ count - 1 }}u * step {% endif %}< params.k; k += {{ count }}u * step) {
{% for i in range(count) %}
                    let a{{ i }} = load_a(a_base, row, k + {{ i }}u * step);
                    let b{{ i }} = load_b(b_base, k + {{ i }}u * step, col);
{% endfor %}
{% for i in range(count) %}
                    sum = fma(a{{ i }}, b{{ i }}, sum);
{% endfor %}
                }
{% endfor %}
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
