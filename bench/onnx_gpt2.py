"""GPT-2 as an ONNX graph, as exporters of decoders write it for ONNX Runtime's WebGPU provider (`onnx_decoder.py`).

GroupQueryAttention takes queries, keys and values in one, and has one buffer for past and present keys. Skip
connections are in the normalisations, and biases in the functions that follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Weights = dict[str, NDArray[Any]]  # with GPT-2's names

CONTRIBUTED = ("FastGelu", "GroupQueryAttention", "SkipLayerNormalization")  # operators in the domain com.microsoft
WHOLE = TensorProto.INT32  # the type of tokens and positions
EPSILON = 1e-5  # that of webmm.layer_norm
ALIGNED = 64  # of the padded vocabulary: the provider's products load 16 bytes at once only if the rows allow it


def layers(weights: Weights) -> int:
    """Return the number of layers."""
    return sum(name.endswith("attn.c_attn.weight") for name in weights)


def serialised(weights: Weights, heads: int, dtype: str, capacity: int, counted: bool) -> bytes:
    """Return a model: from `tokens` (1, t) int32 to `logits` (1, 1, vocabulary) float32 and `next_tokens` (1, 1) int32.

    Both are of the last token. More inputs are `positions` (1, t), `last` (1,), which is the last position, and `total`
    (1,), the number of tokens in the cache then. If `counted`, t is 1, and there is `room` (1,) instead: how many
    tokens fit into the cache after this one; the output `next_room` is that of the next. The cache is `key.i` and
    `value.i` (1, heads, capacity, width / heads) of each layer i; `next_key.i` and `next_value.i` are to be the same
    buffers.
    """
    vocabulary, width = weights["wte.weight"].shape
    graph = Graph(weights, np.dtype(dtype))
    if counted:
        graph.count(capacity)
    graph.choose(graph.decoded(layers(weights), heads), weights["wte.weight"])
    real, tokens = helper.np_dtype_to_tensor_dtype(graph.dtype), (1, 1 if counted else "t")
    shape = (1, heads, capacity, width // heads)
    cache = [(f"{kind}.{i}", real, shape) for i in range(layers(weights)) for kind in ("key", "value")]
    places = {"room": (1,)} if counted else {"positions": tokens, "last": (1,), "total": (1,)}
    inputs = [("tokens", WHOLE, tokens), *((name, WHOLE, of) for name, of in places.items()), *cache]
    outputs: list[Any] = [("logits", TensorProto.FLOAT, (1, 1, vocabulary)), ("next_tokens", WHOLE, (1, 1))]
    outputs += [("next_room", WHOLE, (1,))] * counted + [(f"next_{name}", *of) for name, *of in cache]
    return graph.serialised(inputs, outputs)


class Graph:
    """Nodes and constants, which include the weights in `dtype`; a name stands for its value."""

    def __init__(self, weights: Weights, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        for name, x in weights.items():
            self._constant(x.astype(dtype), name)

    def serialised(self, inputs: list[Any], outputs: list[Any]) -> bytes:
        """Return the model, with inputs and outputs of these names, types and shapes."""
        described = [[helper.make_tensor_value_info(*each) for each in some] for some in (inputs, outputs)]
        graph = helper.make_graph(self.nodes, "gpt2", described[0], described[1], self.constants)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return model

    def count(self, capacity: int) -> None:
        """Add `total`, `last` and `positions` of a token after which the cache has `room`.

        `next_room` depends on the only node that reads `room`, so that both may be one buffer.
        """
        total = self._add("Sub", self._whole(capacity), "room", outputs=("total",))
        last = self._add("Sub", total, self._whole(1), outputs=("last",))
        self._add("Unsqueeze", last, self._constant(np.array([0])), outputs=("positions",))
        self._add("Sub", self._whole(capacity - 1), total, outputs=("next_room",))

    def decoded(self, count: int, heads: int) -> str:
        """Add `count` layers and the last normalisation; return its result (1, t, width)."""
        x, kept = self._add("Gather", "wte.weight", "tokens"), self._add("Gather", "wpe.weight", "positions")
        bias: tuple[str, ...] = ()
        for i in range(count):
            layer = f"h.{i}."
            x, kept = self._normed(f"{layer}ln_1", x, kept, *bias)
            qkv = self._add("Add", self._times(x, f"{layer}attn.c_attn"), f"{layer}attn.c_attn.bias")
            x = self._times(self._attended(i, qkv, heads), f"{layer}attn.c_proj")
            x, kept = self._normed(f"{layer}ln_2", x, kept, f"{layer}attn.c_proj.bias")
            x = self._add("FastGelu", self._times(x, f"{layer}mlp.c_fc"), f"{layer}mlp.c_fc.bias")
            x, bias = self._times(x, f"{layer}mlp.c_proj"), (f"{layer}mlp.c_proj.bias",)
        return self._normed("ln_f", x, kept, *bias)[0]

    def choose(self, x: str, words: NDArray[Any]) -> None:
        """Add `logits` and `next_tokens`, of x (1, t, width) and `words` (vocabulary, width).

        The logits are computed of all tokens, as by the others. ArgMax would read them one after another in one
        invocation; these reductions have a workgroup.
        """
        length = len(words)
        matrix = self._constant(np.pad(words.T, ((0, 0), (0, -length % ALIGNED))).astype(self.dtype))
        ends = [self._constant(np.array(each)) for each in ([-1, 0], [np.iinfo(np.int64).max, length], [1, 2])]
        last = self._add("Slice", self._add("MatMul", x, matrix), *ends)
        logits, axis = self._add("Cast", last, outputs=("logits",), to=TensorProto.FLOAT), self._constant(np.array([2]))
        is_largest = self._add("Equal", logits, self._add("ReduceMax", logits, axis))
        numbers = self._constant(np.arange(length, dtype=np.int32).reshape(1, 1, -1))
        found = self._add("Where", is_largest, numbers, self._whole(length))
        self._add("ReduceMin", found, axis, outputs=("next_tokens",), keepdims=0)

    def _normed(self, name: str, x: str, kept: str, *bias: str) -> tuple[str, str]:
        """Return the layer norm of x + kept + bias, and that sum, both (1, t, width)."""
        outputs = (f"{name}.normed", "", "", f"{name}.sum")
        inputs = (x, kept, f"{name}.weight", f"{name}.bias", *bias)
        self._add("SkipLayerNormalization", *inputs, outputs=outputs, epsilon=EPSILON)
        return outputs[0], outputs[3]

    def _attended(self, layer: int, qkv: str, heads: int) -> str:
        """Return the attention (1, t, width) of qkv (1, t, 3 width), whose keys and values are added to the cache."""
        cache = (f"key.{layer}", f"value.{layer}")
        outputs = (f"h.{layer}.attended", *(f"next_{name}" for name in cache))
        inputs = (qkv, "", "", *cache, "last", "total")
        return self._add("GroupQueryAttention", *inputs, outputs=outputs, num_heads=heads, kv_num_heads=heads)

    def _times(self, x: str, name: str) -> str:
        return self._add("MatMul", x, f"{name}.weight")

    def _whole(self, number: int) -> str:
        return self._constant(np.array([number], np.int32))

    def _constant(self, value: NDArray[Any], name: str = "") -> str:
        name = name or f"constant.{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _add(self, operator: str, *inputs: str, outputs: tuple[str, ...] = (), **attributes: Any) -> str:
        """Add a node and return the name of its first output."""
        outputs = outputs or (f"result.{len(self.nodes)}",)
        domain = "com.microsoft" if operator in CONTRIBUTED else ""
        self.nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
        return outputs[0]
