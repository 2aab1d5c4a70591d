// alone: y = {{ s.operation }} of each row of x, by a subgroup per row.
//
// Storage: x[i, k, j] with a stride each, reduced over k; bound as array<vec4> where k is contiguous and all lengths
// are multiples of 4; a row is one (i, j), y has them one after the other.
// Changed from subgroup: a workgroup is a single subgroup, which needs no barrier and no memory. That suits short rows,
// and CPUs, where a barrier suspends every lane.
// Shapes: any; beyond the end of a row stands what changes nothing. Workgroup memory: none. Needs subgroups of LANES
// lanes.
{% include "common/reduce_row.wgsl" %}
