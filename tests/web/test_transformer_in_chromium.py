"""examples/transformer.html in Chromium: each step's logits and the tokens are those of a float64 reference."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.transformer_reference import BOUND, EPS, EXAMPLE, HEADS, PROMPT, STEPS, continued, loaded, reference, stored
from tests.web.conftest import TIMEOUT, Watch
from webmm.page import serve

LOGITS = """async ([heads, form, steps]) => {
    const { Transformer, load } = await import("./transformer.js");
    const { Device } = await import("./webmm.js");
    const file = await (await fetch("model.safetensors")).blob();
    const gpu = await Device.open();
    const model = await Transformer.open(gpu, await load(file), heads, form);
    const cache = await model.cache(1, steps.flat().length);
    const found = [];
    for (const step of steps) {
        const logits = await model.logits([step], cache);
        found.push(...(await logits.read()).toList()[0]);
        logits.free();
    }
    return [found, cache.lengths];
}"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from safetensors.numpy import save_file

    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({f"transformer.{name}": x for name, x in loaded().random_weights().items()}, path)
    return path


@pytest.fixture(scope="module")
def address(page_folder: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a page with the example beside it, as its comment says."""
    folder = shutil.copytree(page_folder, tmp_path_factory.mktemp("served") / "page")
    for file in (*EXAMPLE.parent.glob("transformer.*"), weights):
        shutil.copy(file, folder)
    with serve.server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture
def tab(browser, address: str):
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    watch = Watch(address, page)
    page.goto(f"{address}transformer.html")
    yield page
    context.close()
    assert watch.errors == []
    assert watch.foreign == []


def answer(tab, **given: str) -> str:
    """Fill in the form, and return what it shows in the end."""
    for name, value in given.items():
        field = tab.locator(f"[name={name}]")
        if name == "weights":
            field.set_input_files(value)
        elif name == "format":
            field.select_option(value)
        else:
            field.fill(value)
    tab.get_by_role("button", name="Generate").click()
    tab.wait_for_selector("button:enabled")
    return tab.locator("output").inner_text()


@pytest.mark.parametrize("form", ["float32", "4bit"])
def test_every_step_is_right(tab, weights, form):
    exact = stored(loaded().load(weights), form)
    tokens = continued(exact, PROMPT, STEPS)
    steps = [PROMPT, *([token] for token in tokens[len(PROMPT) :])]
    got, lengths = tab.evaluate(LOGITS, [HEADS, form, steps])
    expected = reference(exact, tokens)
    assert lengths == [len(tokens)] * 2
    worst = np.abs(np.array(got) - expected).max(-1) / np.abs(expected).max(-1)
    assert worst.max() < BOUND * EPS[form]


def test_the_form_generates_tokens(tab, weights):
    shown = answer(tab, weights=str(weights), prompt=" ".join(map(str, PROMPT)), tokens="4")
    exact = stored(loaded().load(weights), "float32")
    assert shown.splitlines()[0] == f"tokens: {' '.join(map(str, continued(exact, PROMPT, 4)[len(PROMPT) :]))}"
    assert "ms per token after the first, on" in shown


WRONG = {
    "a word": ({"prompt": "one"}, "ProblemError: token NaN is out of range for 97 words"),
    "spaces": ({"prompt": "  "}, "ProblemError: token NaN is out of range for 97 words"),
    "a large token": ({"prompt": "1 97"}, "ProblemError: token 97 is out of range for 97 words"),
    "too many": ({"tokens": "60"}, "ProblemError: the model has 64 positions, too few for 65 tokens"),
    "heads": ({"heads": "5"}, "ProblemError: 5 heads do not divide a width of 64"),
    "no weights": ({"weights": __file__}, "ProblemError: cannot read test_transformer_in_chromium.py: "),
}


def test_bad_input_is_one_line(tab):
    for name, (given, words) in WRONG.items():
        tab.reload()
        shown = answer(tab, **given)
        assert shown.startswith(words), name
        assert "\n" not in shown, name
