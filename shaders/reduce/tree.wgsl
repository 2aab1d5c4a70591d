// tree: y = {{ s.operation }} of each row of x, by a workgroup per row.
//
// Storage: x[i, k, j] with a stride each, reduced over k; bound as array<vec4> where k is contiguous and all lengths
// are multiples of 4; a row is one (i, j), y has them one after the other.
// Changed from vectorized: LANES invocations share a row. Neighbouring lanes read neighbours in memory; what they have
// is merged in workgroup memory, by halves.
// Shapes: any; beyond the end of a row stands what changes nothing. Workgroup memory: LANES parts of up to 8 bytes.
{% include "common/reduce_row.wgsl" %}
