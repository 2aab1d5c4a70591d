// tree: y = {{ s.operation }} of each row of x, by a workgroup per row.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; a row is one (i, j); y holds the results in order.
// Changed from vectorized: LANES invocations share a row. Neighbouring invocations read neighbouring elements; a
// tree in workgroup memory combines their partial results.
// Edges: rows are padded with the identity. Workgroup memory: LANES partial results of 4 to 12 bytes.
{% include "common/reduce_row.wgsl" %}
