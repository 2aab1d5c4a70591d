"""Translation of Python to JavaScript: every construct of the subset behaves the same; anything else is an error."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jinja2
import pytest

from tests.unit import script_sample
from webmm.page.script import names, runtime, templates, waiting
from webmm.page.script.names import Name, ScriptError
from webmm.page.script.program import Program

WEB = Path(__file__).parents[2] / "web"
SAMPLE = script_sample.__name__
FUNCTIONS = (
    *("booleans", "builtins", "caches", "chained", "classes", "errors", "laziness", "loops", "packed", "signs"),
    *("text", "values"),
)


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "PACKAGES", ["webmm", "tests", "given"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(WEB / "python", tmp_path / "python")
    for name in ("python.js", "templates.js", "errors.js"):
        shutil.copy(WEB / name, tmp_path / name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "bundle" / "templates").mkdir(parents=True)
    return tmp_path


def node(folder: Path, script: str) -> str:
    (folder / "run.js").write_text(script)
    done = subprocess.run(["node", str(folder / "run.js")], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


PLAIN = """
const entries = (x) => Object.fromEntries([...x].map(([key, value]) => [key, plain(value)]));
const plain = (x) => (Array.isArray(x) ? x.map(plain) : x instanceof $.Dict ? entries(x) : x);
"""


def test_every_construct_gives_the_same_result(folder: Path) -> None:
    program = Program([Name(SAMPLE, name) for name in FUNCTIONS])
    (folder / "bundle" / "core.js").write_text(program.texts({"core.js": program.entries})["core.js"])
    calls = "\n".join(f"console.log(JSON.stringify(plain(core.{name}())));" for name in FUNCTIONS)
    head = 'import * as $ from "./python.js";\nimport * as core from "./bundle/core.js";\n'
    found = node(folder, head + PLAIN + calls).splitlines()
    for name, line in zip(FUNCTIONS, found, strict=True):
        expected = getattr(script_sample, name)()
        assert json.loads(line) == json.loads(json.dumps(expected)), name


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let JavaScript have a function that returns a promise."""
    monkeypatch.setattr(names, "AWAITED", (f"{SAMPLE}.slow",))
    waiting.waits.cache_clear()
    yield
    waiting.waits.cache_clear()


@pytest.mark.usefixtures("slow")
def test_functions_that_wait_are_awaited(folder: Path) -> None:
    program = Program([Name(SAMPLE, "waiting")])
    (folder / "bundle" / "core.js").write_text(program.texts({"core.js": program.entries})["core.js"])
    head = 'import * as $ from "./python.js";\nimport * as core from "./bundle/core.js";\n'
    provided = f"$.provide('{SAMPLE}.slow', async (x) => x + 1);\n"
    told = node(folder, head + provided + "console.log(JSON.stringify(await core.waiting()));")
    assert json.loads(told) == json.loads(json.dumps(script_sample.waiting()))


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    "body", ["return lambda y: slow(y)", "return x and slow(x)", "return (slow(y) for y in x)", "yield slow(x)"]
)
def test_what_cannot_wait_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    translate = translated(tmp_path, monkeypatch, f"from {SAMPLE} import slow\n\n\ndef f(x):\n    {body}\n")
    with pytest.raises(ScriptError, match=r"given\.py:\d: .* waits?"):
        translate()


def test_a_python_only_function_must_be_provided(folder: Path) -> None:
    program = Program([Name(SAMPLE, "only_python")])
    (folder / "bundle" / "core.js").write_text(program.texts({"core.js": program.entries})["core.js"])
    head = 'import * as $ from "./python.js";\nimport { only_python } from "./bundle/core.js";\n'
    tries = "try { only_python(1); } catch (error) { console.log(error.message); }\n"
    provided = f"$.provide('{SAMPLE}.only_python', (x) => x + 1);\nconsole.log(only_python(1));"
    assert node(folder, head + tries + provided).splitlines() == [
        f"{SAMPLE}.only_python is available in Python only",
        "2",
    ]


def test_javascript_tells_what_is_of_a_class_that_it_has_of_its_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "PROVIDED", (f"{SAMPLE}.Box",))
    body = "return [isinstance(each, Box) for each in x]"
    program = translated(tmp_path, monkeypatch, f"from {SAMPLE} import Box\n\n\ndef f(x):\n    {body}\n")()
    (folder / "bundle" / "core.js").write_text(program.texts({"core.js": program.entries})["core.js"])
    head = 'import * as $ from "./python.js";\nimport { f } from "./bundle/core.js";\n'
    provided = f"$.provide('{SAMPLE}.Box', (x) => x === 'ours');\n"
    assert json.loads(node(folder, head + provided + "console.log(JSON.stringify(f(['ours', 2])));")) == [True, False]


def translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Callable[[], Program]:
    """Return a function that translates `f` of a module `given` with this source."""
    (tmp_path / "given.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "given", raising=False)
    importlib.invalidate_caches()
    importlib.import_module("given")
    return lambda: Program([Name("given", "f")])


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("with x: pass", "With is not translated"),
        ("for i in x: break\n    else: pass", "for … else is not translated"),
        ("while x: break\n    else: pass", "while … else is not translated"),
        ("return x @ x", "the operator MatMult is not translated"),
        ("return ~x", "the operator Invert is not translated"),
        ("return f'{x!a}'", "the conversion !a is not translated"),
        ("return 1 < x + 1 < 3", "the middle operands of a chained comparison must be names"),
        ("return lambda y=1: y", "a lambda with defaults, * or ** is not translated"),
        ("return b'x'", "is not translated"),
        ("return x.nothing_has_this", "no translated class has an attribute nothing_has_this"),
        ("return sorted(x, cmp=1)", "sorted() accepts only the keywords key, default and reverse"),
        ("return len(x, y=1)", "keyword arguments of len() are not translated"),
        ("x.y = 1", "an assignment to Attribute is not translated"),
        ("x[0] += 1", "the target of an augmented assignment must be a variable"),
        ("try:\n        x\n    finally:\n        x", "try must have exactly one except clause, with a type"),
        ("raise", "raise must have an exception"),
        ("global Y; Y = 1", "Global is not translated"),
        ("async def g(): pass", "AsyncFunctionDef is not translated"),
        ("a, b = c = x", "all targets of a chained assignment must be variables"),
        ("for a, *b, c in x: pass", "a starred target must be the last one"),
        ("del x[0]", "the target of del must be a variable"),
        ("return [*x, *(yield)]", "Yield is not translated"),
        ("return isinstance(f(x), int)", "isinstance() is asked of variables only"),
        ("return g(z=1)\n\ndef g(y): return y", "g() has no parameter z"),
    ],
)
def test_constructs_beyond_the_subset_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, what: str
) -> None:
    translate = translated(tmp_path, monkeypatch, f"Y = 0\n\n\ndef f(x):\n    {body}\n")
    with pytest.raises(ScriptError, match=rf"given\.py:\d+: .*{re.escape(what)}"):
        translate()


def test_javascript_provides_functions_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = Name(SAMPLE, "counted")
    monkeypatch.setattr(names, "PROVIDED", (str(name),))
    program = Program([name])
    (folder / "bundle" / "core.js").write_text(program.texts({"core.js": [name]})["core.js"])
    head = 'import * as $ from "./python.js";\nimport { counted } from "./bundle/core.js";\n'
    told = node(folder, head + f'$.provide("{name}", (n) => `mine ${{n}}`);\nconsole.log(counted(3));')
    assert told == "mine 3\n"


@pytest.mark.parametrize("source", ["def f(x): return open(x)", "class f:\n    def g(self): return open(self)"])
def test_pure_packages_have_no_functions_for_python_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    assert "$.host(" in translated(tmp_path, monkeypatch, source)().found[Name("given", "f")].text
    monkeypatch.setattr(names, "PURE", ("given",))
    with pytest.raises(ScriptError, match=r"given\.py:\d: [fg]\(\) uses open, which the page does not have"):
        Program([Name("given", "f")])


def test_the_runtime_defines_every_promised_name(folder: Path) -> None:
    wanted = [*runtime.BUILTINS, *runtime.RENAMED.values()]
    wanted += [f"{module.__name__}.{name}" for module, members in runtime.MODULES.items() for name in members]
    head = 'import * as $ from "./python.js";\n'
    told = node(
        folder,
        head + "\n".join(f"console.log('{word}' , $.{word} !== undefined);" for word in wanted),
    )
    missing = [line.split()[0] for line in told.splitlines() if line.endswith("false")]
    assert missing == ["dataclasses.MISSING"]  # its value is undefined
    told = node(
        folder,
        'import * as $ from "./python.js";\n'
        + f"""
        for (const name of {json.dumps(sorted(runtime.METHODS - runtime.TEXT_METHODS.keys()))}) {{
          try {{ $.method(name, ""); }} catch (error) {{ if (/METHODS/.test(error.message)) console.log(name); }}
        }}""",
    )
    assert not told.split()


# Templates

ENVIRONMENT = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
TEMPLATES = {
    "main.wgsl": (
        '{% import "lib.wgsl" as lib with context %}\n{% include "head.wgsl" %}\n'
        "{% set half = namespace(size=8) %}\n"
        "{% for i in range(9) if half.size %}\n{{ i }}:{{ half.size }}{{ ',' if not loop.last }}"
        "{{ ' first' if loop.first }}\n"
        "{% set half.size = half.size // 2 %}\n{% endfor %}\n"
        "{% call lib.wrapped('x', size=n + 1) %}\n  inner {{ n }}\n{% endcall %}\n"
        "{{ lib.plain }} {{ lib.twice(3) }} {{ lib.twice(b=1, a=2) }}\n"
        "{% set block %}\nkept {{ n }}\n{% endset %}\n[{{ block }}]\n"
        "{% for a, b in [(1, 2), (3, 4)] %}{{ a ~ b }} {% endfor %}\n"
        "{{ items | join('+') }} {{ items | length }} {{ items | max }} {{ items | reverse | list | join }} "
        "{{ missing | default('none') }} "
        "{{ {'k': 5}.k }} {{ 'ab'[loopless] }}\n"
        "{% if flag %}\nyes\n{% elif n == 4 and items %}\nfour\n{% else %}\nno\n{% endif %}\n"
        "{{ 1 < n <= 4 }} {{ 1 < n <= 3 }} {{ 5 < n <= 9 }} {{ 0 <= n - 4 in items }}\n"
    ),
    "lib.wgsl": (
        "{# a comment #}\n{% set plain = 'n is ' ~ n %}\n"
        "{% macro twice(a, b=2) -%}\n{{ a * b }}\n{%- endmacro %}\n"
        "{% macro wrapped(name, size) %}\n<{{ name }} {{ size }}>\n"
        "{{ caller() }}</{{ name | upper }}>\n{% endmacro %}\n"
    ),
    "head.wgsl": "// `quoted` ${n} {{ n }}\n",
}
HEAD = 'import "./bundle/templates/main.js";\nimport { render } from "./templates.js";\n'
GIVEN = {"n": 4, "items": [3, 1, 2], "flag": False, "loopless": 1}


def test_templates_render_like_jinja(folder: Path) -> None:
    shaders = folder / "shaders"
    shaders.mkdir()
    for name, text in TEMPLATES.items():
        (shaders / name).write_text(text)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shaders), undefined=jinja2.StrictUndefined, **ENVIRONMENT
    )
    every = templates.names(shaders)
    for name in every:
        module = templates.module(environment, shaders, name, every)
        (folder / "bundle" / "templates" / name.replace(".wgsl", ".js")).write_text(
            module.replace('"../../', '"../../')
        )
    found = node(
        folder,
        HEAD + f'process.stdout.write(render("main.wgsl", {json.dumps(GIVEN)}));',
    )
    assert found == environment.get_template("main.wgsl").render(GIVEN)
    tries = 'try { render("main.wgsl", {}); } catch (error) { console.log(error.message); }'
    assert "'n' is undefined" in node(folder, HEAD + tries)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{% for x in y recursive %}{% endfor %}", "for … else and recursive loops are not translated"),
        ("{{ x | round }}", "the filter round is not translated"),
        ("{{ x is defined }}", "Test is not translated"),
        ("{% filter upper %}{% endfilter %}", "FilterBlock is not translated"),
        ("{{ f(*x) }}", "*args and **kwargs are not translated"),
        ("{{ 1 / 2 }}", "Div is not translated"),
        ("{{ 'x%d' % 2 }}", "% of a text is not translated; join the parts with ~"),
        ("{% include 'x' ignore missing %}", "Include is not translated"),
    ],
)
def test_templates_beyond_the_subset_are_errors(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "x.wgsl").write_text("\n" + text)
    with pytest.raises(templates.TemplateError, match=rf"^x\.wgsl:2: {re.escape(what)}"):
        templates.module(jinja2.Environment(), tmp_path, "x.wgsl", ["x.wgsl"])


# Names of the runtime


def test_names_of_the_runtime_are_short(folder: Path) -> None:
    code = "console.log($.mul($.add(1, 2), 3), `${$.add(4, 5)}`);\n"
    plain = f'import * as $ from "./python.js";\nconst x = {{ $: 1 }};\n{code}'
    assert node(folder, runtime.imported(plain)) == node(folder, plain) == "9 9\n"
    assert runtime.imported(plain).startswith('import { add as $a, mul as $b } from "./python.js";')
