// subgroup: y = {{ s.operation }} of each row of x, by a workgroup per row.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; bound as array<vec4> if k is contiguous and all lengths
// are multiples of 4; a row is one (i, j); y holds the results in order.
// Changed from tree: the lanes of a subgroup, of any size, combine in registers. One barrier is left.
// Shapes: any; rows are padded with the identity. Workgroup memory: a partial result per subgroup.
{% include "common/reduce_row.wgsl" %}
