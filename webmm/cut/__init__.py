"""How a problem becomes pieces that are within limits: pure functions of numbers, without a device or an array.

A `Piece` is a range of each axis, by the axis's letter. Axes that several operands share have one letter, so that a
piece says which elements of each operand it needs, and which elements of the result it computes. Pieces along axes of
the result are independent. Along a summed axis, they are added in order; `first`, `last` and `apart` say how.

A planner starts from the whole. A `Demand` looks at the lengths of a piece and names the axis to cut next, or "" if it
is met: an operand exceeds a binding, the operations exceed a dispatch, the pieces that are on the device at a time
exceed its memory. While a demand is not met, `fitted()` halves the axis that it names, at `GRAINS`, so that operands
stay aligned and tiles whole. Demands are in order of preference: the first that is not met decides. What only a kernel
knows (the longest k that stays exact, room for kept sums) is a demand that `webmm.choose` hands in.

- `pieces`: `Limits`, `Piece`, `fitted()`, and `grid()`, the pieces of given lengths in row-major order.
- `dispatches`: of a `Gemm`, which says itself how it is cut (`axes`, `cut()`, `sums_apart`): a piece per dispatch. Only
  those pieces are cut again that exceed a limit.
- `arrays`: of any call, from the letters of its operands' axes: the pieces that are moved to a device and back.
- `files`: of an op on matrices in files in webmm.js; what Python's calls on files have in common with it.
- `streams`: of a product whose operands stay in host memory. A piece of C stays on the device (it is *held*) while
  pieces along k are uploaded; it is computed in shorter pieces of its rows.
- `devices`: of a product among devices, in proportion to their rates: a piece for each, `Piece.worker`. Its time is
  predicted. Tasks of Dask and products of files are these pieces with the limits of a worker.

`webmm.choose.limits` reads the limits of a device; `webmm.calls.executor` executes pieces. `pieces`, `dispatches` and
`arrays` are translated to JavaScript, where calls are cut by the same lines. A *plan* is something else: a recorded
call.

The package is in the translated subset (docs/page.md), but for `devices`.
"""
