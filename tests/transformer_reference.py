"""The model of examples/transformer.py in float64: what its tests in Python and in Chromium compare with."""

import importlib.util
from pathlib import Path

import numpy as np

import webmm

EXAMPLE = Path(__file__).parents[1] / "examples" / "transformer.py"
HEADS, PROMPT, STEPS = 4, [1, 2, 3, 4, 5], 32
EPS = {"float32": 2.0**-23, "4bit": 2.0**-23, "float16": 2.0**-11}
BOUND = 64  # ε · the largest logit, per step: documented in docs/attention.md


def loaded():
    spec = importlib.util.spec_from_file_location("transformer", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def norm(x, w, name):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def reference(w, tokens):
    """Return the logits of one sequence in float64, all at once and without a cache."""
    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]
    future = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for i in range(2):

        def linear(x, name, at=f"h.{i}."):
            return x @ w[f"{at}{name}.weight"] + w[f"{at}{name}.bias"]

        qkv = linear(norm(x, w, f"h.{i}.ln_1"), "attn.c_attn")
        q, k, v = (np.stack(np.split(part, HEADS, -1)) for part in np.split(qkv, 3, -1))
        e = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + future)
        x = x + linear(np.concatenate(e / e.sum(-1, keepdims=True) @ v, -1), "attn.c_proj")
        h = linear(norm(x, w, f"h.{i}.ln_2"), "mlp.c_fc")
        h = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + linear(h, "mlp.c_proj")
    return norm(x, w, "ln_f") @ w["wte.weight"].T


def stored(weights, form):
    """Return the weights in float64 as the model stores them."""
    bits, dtype = (4, np.float32) if form == "4bit" else (0, form)
    return {
        name: (
            webmm.quantize_blocks(x, bits=bits).dequantize()
            if bits and ".c_" in name and x.ndim == 2
            else x.astype(dtype)
        ).astype(np.float64)
        for name, x in weights.items()
    }


def continued(exact, tokens, steps):
    """Return the tokens with those that follow by the reference."""
    for _ in range(steps):
        tokens = [*tokens, int(reference(exact, tokens)[-1].argmax())]
    return tokens
