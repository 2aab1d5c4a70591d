// alone: y = {{ s.operation }} of each row of x, by a subgroup per row.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; a row is one (i, j); y holds the results in order.
// Changed from subgroup: a workgroup is a single subgroup, which needs no barrier and no workgroup memory. This is fast
// for short rows, and on CPUs, where a barrier suspends every invocation.
// Edges: rows are padded with the identity. Workgroup memory: none. Needs subgroups of LANES
// lanes.
{% include "common/reduce_row.wgsl" %}
