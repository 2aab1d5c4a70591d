"""examples/transformer.py: each step's logits are those of a float64 reference, for every format and both engines.

As a program, it prints the largest error of a file's weights in float32 under Dawn.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import webmm

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformer.py"
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


def errors(path, gpu, form):
    """Return the largest error of each step's logits, in ε · the largest logit, fed the tokens of the reference."""
    example = loaded()
    weights = example.load(path)
    exact = stored(weights, form)
    tokens = continued(exact, PROMPT, STEPS)
    expected = reference(exact, tokens)
    model = example.Transformer(weights, HEADS, gpu, form)
    with model.cache(1, len(tokens)) as cache:
        got = [model([PROMPT], cache).numpy()[0]]
        got += [model([[token]], cache).numpy()[0] for token in tokens[len(PROMPT) :]]
        assert cache.lengths == (len(tokens),) * model.layers
    worst = np.abs(np.concatenate(got) - expected).max(-1) / np.abs(expected).max(-1)
    return worst / EPS[form]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    from safetensors.numpy import save_file

    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({f"transformer.{name}": x for name, x in loaded().random_weights().items()}, path)
    return path


@pytest.mark.parametrize("form", ["float32", "4bit"])
def test_every_step_is_right(weights, device, form):
    assert errors(weights, device, form).max() < BOUND


def test_every_step_is_right_under_dawn(weights, swiftshader):
    done = subprocess.run([sys.executable, __file__, weights], env=swiftshader, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < BOUND


def test_tokens_are_chosen_on_the_device(weights, device):
    example = loaded()
    model = example.Transformer(example.load(weights), HEADS, device)
    exact = stored(example.load(weights), "float32")
    assert example.generate(model, [PROMPT], 6)[0].tolist() == continued(exact, PROMPT, 6)[len(PROMPT) :]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--prompt one", "invalid int value: 'one'"),
        ("--prompt 1 97", "out of range for 97 elements"),
        ("--tokens 0", "must be at least 1, not 0"),
        ("--tokens 60", "the model has 64 positions, too few for 65 tokens"),
        ("--heads 5", "5 heads do not divide a width of 64"),
        ("--weights missing.safetensors", "cannot read missing.safetensors"),
        (f"--weights {__file__}", "cannot read"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, options, words):
    monkeypatch.setattr(sys, "argv", ["transformer.py", *options.split()])
    with pytest.raises(SystemExit) as exit:
        loaded().main()
    assert exit.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


if __name__ == "__main__":
    with webmm.Device(engine="dawn") as gpu:
        print(errors(sys.argv[1], gpu, "float32").max())
