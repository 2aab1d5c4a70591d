// subgroup: y = {{ s.operation }} of each row of x, by a workgroup per row.
//
// Storage: x[i, k, j] with a stride each, reduced over k; bound as array<vec4> where k is contiguous and all lengths
// are multiples of 4; a row is one (i, j), y has them one after the other.
// Changed from tree: the lanes of a subgroup, of whatever size, merge what they have in registers. One barrier is left.
// Shapes: any; beyond the end of a row stands what changes nothing. Workgroup memory: a part of up to 8 bytes per
// subgroup.
{% include "common/reduce_row.wgsl" %}
