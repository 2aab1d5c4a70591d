// subgroup: y = {{ s.operation }} of each row of x, by a workgroup per row.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; a row is one (i, j); y holds the results in order.
// Changed from tree: the lanes of a subgroup, of any size, combine in registers. One barrier is left.
// Edges: rows are padded with the identity. Workgroup memory: a partial result per subgroup.
{% include "common/reduce_row.wgsl" %}
