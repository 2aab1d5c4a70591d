"""examples/transformer.py: each step's logits are those of a float64 reference, for every format and both engines.

As a program, it prints the largest error of a file's weights in float32 under Dawn.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import webmm
from tests.transformer_reference import BOUND, EPS, HEADS, PROMPT, STEPS, continued, loaded, reference, stored


def errors(path, gpu, form, captured=False):
    """Return the largest error of each step's logits, in ε · the largest logit, fed the tokens of the reference.

    They are by calls, or by captured functions of the prompt and of a token, which begin with another prompt.
    """
    example = loaded()
    weights = example.load(path)
    exact = stored(weights, form)
    tokens = continued(exact, PROMPT, STEPS)
    expected = reference(exact, tokens)
    model = example.Transformer(weights, HEADS, gpu, form)
    with model.cache(1, len(tokens)) as cache:
        if captured:
            with webmm.capture(lambda tokens, at: model(tokens, cache, at)) as step:
                places = [gpu.array(np.array([i], np.int32)) for i in range(len(tokens))]
                prompts = [gpu.array(np.array([p], np.int32)) for p in (PROMPT[::-1], PROMPT, PROMPT, PROMPT)]
                got = [step(prompt, places[0]).numpy()[0] for prompt in prompts][-1:]
                each = [gpu.array(np.array([[token]], np.int32)) for token in tokens]
                pairs = list(zip(each, places, strict=True))[len(PROMPT) :]
                got += [step(*pair).numpy()[0] for pair in pairs]
                assert len(step._kept) == 2  # of the prompt and of a token
            return worst_of(got, expected) / EPS[form]
        got = [model([PROMPT], cache).numpy()[0]]
        got += [model([[token]], cache).numpy()[0] for token in tokens[len(PROMPT) :]]
        assert cache.lengths == (len(tokens),) * model.layers
    return worst_of(got, expected) / EPS[form]


def worst_of(got, expected):
    return np.abs(np.concatenate(got) - expected).max(-1) / np.abs(expected).max(-1)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    from safetensors.numpy import save_file

    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({f"transformer.{name}": x for name, x in loaded().random_weights().items()}, path)
    return path


@pytest.mark.parametrize("form", ["float32", "4bit"])
def test_every_step_is_right(weights, device, form):
    assert errors(weights, device, form).max() < BOUND


@pytest.mark.parametrize("form", ["float32", pytest.param("float16", marks=pytest.mark.long), "4bit"])
def test_every_captured_step_is_right(weights, device, form):
    assert errors(weights, device, form, captured=True).max() < BOUND


def test_every_step_is_right_under_dawn(weights, swiftshader):
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**swiftshader, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, __file__, weights], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < BOUND


def test_tokens_are_chosen_on_the_device(weights, device):
    example = loaded()
    model = example.Transformer(example.load(weights), HEADS, device)
    exact = stored(example.load(weights), "float32")
    prompts = [PROMPT, [*PROMPT[1:], 0]]
    expected = [continued(exact, prompt, 6)[len(PROMPT) :] for prompt in prompts]
    assert example.generate(model, [PROMPT], 6).tolist() == expected[:1]
    assert example.generate(model, prompts, 6).tolist() == expected


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
        (
            "--weights without",
            "without: h.1.mlp.c_fc.weight must be floats of shape (64, 256), with GPT-2's names and shapes",
        ),
        ("--weights integers", "integers: wte.weight must be floats of shape (97, 64)"),
        ("--prompt -1", "prompts must be whole numbers from 0 on, (batch, tokens), at least one token each"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, tmp_path, options, words):
    from safetensors.numpy import save_file

    monkeypatch.chdir(tmp_path)
    weights = loaded().random_weights()
    save_file({name: x for name, x in weights.items() if name != "h.1.mlp.c_fc.weight"}, "without")
    save_file({name: x.astype(np.int32) for name, x in weights.items()}, "integers")
    monkeypatch.setattr(sys, "argv", ["transformer.py", *options.split()])
    with pytest.raises(SystemExit) as exit:
        loaded().main()
    assert exit.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


if __name__ == "__main__":
    with webmm.Device(engine="dawn") as gpu:
        print(max(errors(sys.argv[1], gpu, "float32", captured).max() for captured in (False, True)))
