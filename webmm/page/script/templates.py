"""Translation of Jinja templates to JavaScript functions, from Jinja's syntax trees.

Each template becomes a function of its scope that returns the text; `web/templates.js` has the functions that it calls.
Only the features that the templates in `shaders/` use are supported; anything else is an error with its file and line.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jinja2
from jinja2 import nodes

from webmm.dtypes import DTYPES
from webmm.errors import ConfigError
from webmm.kernels import REGISTERED
from webmm.page.script import runtime
from webmm.problems.reduce import OPERATIONS
from webmm.wgsl.compilers import shown
from webmm.wgsl.epilogues import ACTIVATIONS
from webmm.wgsl.render import template_of

OPERATORS: dict[type[nodes.Node], str] = {
    **{nodes.Add: "add", nodes.Sub: "sub", nodes.Mul: "mul", nodes.FloorDiv: "floordiv"},
    **{nodes.Mod: "mod", nodes.Pow: "pow"},
}
COMPARISONS = {"eq": "$.eq", "ne": "!$.eq", "lt": "$.lt", "lteq": "$.le", "gt": "$.gt", "gteq": "$.ge"}
# The possible values in computed template names.
COMPUTED = {*ACTIVATIONS, *OPERATIONS, *(dtype.wgsl for dtype in DTYPES.values())}
IMPORTED = "add, get as g, include, inner, invoke, item, loop as each, macro, member as m, module, range"
FILTERS = {  # of `x` with their arguments; `sought` is an object and the name that is sought in it
    **{"length": "$.len({x})", "list": "$.list({x})", "reverse": "$.reversed({x})", "max": "$.max({x})"},
    **{"upper": "$.str({x}).toUpperCase()", "join": "$.list({x}).map($.str).join({given})"},
    **{"default": "m({sought}, {given})", "rejectattr": "$.list({x}).filter((x) => !$.truth(m(x, {given})))"},
}
GLOBALS = {"dict": "$.dict", "namespace": "$.dict", "range": "range"}  # functions of all templates


class TemplateError(ConfigError):
    """A template feature that is not supported; the message has its file and line."""

    def __init__(self, template: str, node: nodes.Node, what: str) -> None:
        super().__init__(f"{template}:{node.lineno}: {what}")


def names(folder: Path) -> list[str]:
    """Return the names of the templates below `folder`."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.wgsl"))


def of_plugins(environment: jinja2.Environment) -> dict[Path, str]:
    """Return the files of the registered stages' templates, and of those that they include from their own folders.

    The values are their names on the page: OP/STAGE.wgsl, and OP/STAGE/NAME.wgsl for what a stage includes.
    """
    found: dict[Path, str] = {}
    waiting = [(Path(template_of(step)), step.template) for stage in REGISTERED for step in stage().dispatches]
    while waiting:
        file, name = waiting.pop()
        if file.is_absolute() and file not in found:
            found[file] = name
            folder = "/".join(name.split("/")[:2]).removesuffix(".wgsl")
            waiting += [
                (other, f"{folder}/{other.name}") for other in _beside(_parsed(environment, file), file).values()
            ]
    return found


@functools.lru_cache(maxsize=512)
def _tree(environment: jinja2.Environment, text: str, name: str) -> nodes.Template:
    """Return the syntax tree of a template, which nobody changes: several questions are asked of each."""
    return environment.parse(text, name)


def _parsed(environment: jinja2.Environment, file: Path) -> nodes.Template:
    try:
        return _tree(environment, file.read_text(encoding="utf-8"), shown(str(file)))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"{shown(str(file))}:{error.lineno}: {error.message}") from error


def _beside(root: nodes.Template, file: Path) -> dict[str, Path]:
    """Return the files that a plugin's template includes from its own folder, by the names in the template."""
    others: list[nodes.Import | nodes.Include] = [*root.find_all(nodes.Import), *root.find_all(nodes.Include)]
    named = {each.template.value for each in others if isinstance(each.template, nodes.Const)}
    paths = {name: Path(os.path.normpath(file.parent / name)) for name in named}
    return {name: path for name, path in paths.items() if path.is_file()}


def by_keyword(environment: jinja2.Environment, folder: Path) -> set[str]:
    """Return the names of the methods that templates call with keywords, other than macros of templates."""
    files = (*(folder / name for name in names(folder)), *of_plugins(environment))
    calls = (call for file in files for call in _parsed(environment, file).find_all(nodes.Call) if call.kwargs)
    return {call.node.attr for call in calls if isinstance(call.node, nodes.Getattr)}


def module(environment: jinja2.Environment, folder: Path, name: str, every: Sequence[str]) -> str:
    """Return a JavaScript module that registers the template `name`, and imports those that it needs."""
    root = _parsed(environment, folder / name)
    return _module(_Template(name), root, name, needed(root, every))


def plugin_module(environment: jinja2.Environment, file: Path, known: Mapping[Path, str], every: Sequence[str]) -> str:
    """Return a JavaScript module as `module()` does, of one of the templates `known` from `of_plugins()`."""
    root = _parsed(environment, file)
    own = {name: known[path] for name, path in _beside(root, file).items()}
    others = {*own.values(), *needed(root, [name for name in every if name not in own])}
    return _module(_Template(shown(str(file)), own), root, known[file], sorted(others))


def _module(template: _Template, root: nodes.Template, name: str, others: Sequence[str]) -> str:
    up = "../" * (name.count("/") + 2)
    imports = [f'import * as $ from "{up}python.js";', f'import {{ {IMPORTED} }} from "{up}templates.js";']
    here = "../" * name.count("/") or "./"
    imports += [f'import "{here}{other.removesuffix(".wgsl")}.js";' for other in others]
    return "\n".join([*imports, f"add({json.dumps(name)}, {template.write(root)});\n"])


def needed(root: nodes.Template, every: Sequence[str]) -> list[str]:
    """Return the templates that a template imports and includes; for a computed name, all possible ones."""
    found: set[str] = set()
    others: list[nodes.Import | nodes.Include] = [*root.find_all(nodes.Import), *root.find_all(nodes.Include)]
    for template in (each.template for each in others):
        parts = template.nodes if isinstance(template, nodes.Concat) else [template]
        form = "".join(re.escape(part.value) if isinstance(part, nodes.Const) else r"(\w+)" for part in parts)
        fitting = ((name, re.fullmatch(form, name)) for name in every)
        found |= {name for name, match in fitting if match and set(match.groups()) <= COMPUTED}
    return sorted(found)


class _Expressions:
    """Translates the expressions of one template."""

    def __init__(self, name: str, own: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.own = own or {}  # names on the page of the templates that a plugin's calls otherwise
        self.depth = 0  # nesting depth of scopes
        self.modules: set[str] = set()  # the names of the imported templates

    def _error(self, node: nodes.Node, what: str = "") -> TemplateError:
        return TemplateError(self.name, node, what or f"{type(node).__name__} is not translated")

    @property
    def _scope(self) -> str:
        return f"s{self.depth}"

    def _x(self, node: nodes.Node) -> str:
        writer = getattr(self, f"_{type(node).__name__.lower()}", None)
        if writer is None:
            raise self._error(node)
        text: str = writer(node)
        return text

    def _get(self, name: str) -> str:
        return f"g({self._scope}, {json.dumps(name)})"

    def _name(self, node: nodes.Name) -> str:
        return self._get(node.name)

    def _const(self, node: nodes.Const) -> str:
        return json.dumps(node.value, ensure_ascii=False)

    def _templatedata(self, node: nodes.TemplateData) -> str:
        return json.dumps(node.data, ensure_ascii=False)

    def _getattr(self, node: nodes.Getattr) -> str:
        return f"m({self._x(node.node)}, {json.dumps(node.attr)})"

    def _getitem(self, node: nodes.Getitem) -> str:
        if isinstance(node.arg, nodes.Slice):
            if node.arg.step is not None:
                raise self._error(node, "a slice with a step is not translated")
            ends = (node.arg.start, node.arg.stop)
            return f"{self._x(node.node)}{runtime.sliced(*(None if end is None else self._x(end) for end in ends))}"
        return f"item({self._x(node.node)}, {self._x(node.arg)})"

    def _call(self, node: nodes.Call, caller: str = "") -> str:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise self._error(node, "*args and **kwargs are not translated")
        values = [self._x(each) for each in node.args]
        named = [f"{each.key}: {self._x(each.value)}" for each in node.kwargs] + [f"caller: {caller}"] * bool(caller)
        function = node.node
        owner = function.node if isinstance(function, nodes.Getattr) else None
        is_macro = isinstance(owner, nodes.Name) and owner.name in self.modules
        if isinstance(function, nodes.Getattr) and function.attr in runtime.METHODS and not (named or is_macro):
            return runtime.method(function.attr, self._x(function.node), ", ".join(values))
        if isinstance(function, nodes.Name) and function.name in GLOBALS:
            given = [*(values or ["[]"]), f"{{ {', '.join(named)} }}"] if named else values
            return f"{GLOBALS[function.name]}({', '.join(given)})"
        every = f"[{', '.join(values)}]" + (f", {{ {', '.join(named)} }}" if named else "")
        if isinstance(function, nodes.Getattr):
            return f"invoke({self._x(function.node)}, {json.dumps(function.attr)}, {every})"
        return f"$.call({self._x(function)}, {every})"

    def _filter(self, node: nodes.Filter) -> str:
        if node.name not in FILTERS or node.kwargs or node.node is None:
            raise self._error(node, f"the filter {node.name} is not translated")
        if node.name == "default" and not isinstance(node.node, nodes.Name | nodes.Getattr):
            raise self._error(node, "a default of something else than a name or attribute is not translated")
        x, given = self._x(node.node), ", ".join(self._x(each) for each in node.args)
        return FILTERS[node.name].format(x=x, sought=x[2:-1], given=given or '""')

    def _condition(self, node: nodes.Node) -> str:
        text = self._x(node)
        return text if isinstance(node, nodes.Compare | nodes.Not) else f"$.truth({text})"

    def _condexpr(self, node: nodes.CondExpr) -> str:
        other = '""' if node.expr2 is None else self._x(node.expr2)
        return f"({self._condition(node.test)} ? {self._x(node.expr1)} : {other})"

    def _and(self, node: nodes.And) -> str:
        return f"$.and({self._x(node.left)}, () => {self._x(node.right)})"

    def _or(self, node: nodes.Or) -> str:
        return f"$.or({self._x(node.left)}, () => {self._x(node.right)})"

    def _not(self, node: nodes.Not) -> str:
        return f"!{self._condition(node.node)}"

    def _compare(self, node: nodes.Compare) -> str:
        parts, left = [], self._x(node.expr)
        for each in node.ops:
            right = self._x(each.expr)
            if each.op in ("in", "notin"):
                parts.append(f"{'!' if each.op == 'notin' else ''}$.contains({left}, {right})")
            else:
                parts.append(f"{COMPARISONS[each.op]}({left}, {right})")
            left = right
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def _binary(self, node: nodes.BinExpr) -> str:
        if isinstance(node, nodes.Mod) and isinstance(node.left, nodes.Const) and isinstance(node.left.value, str):
            raise self._error(node, "% of a text is not translated; join the parts with ~")
        return f"$.{OPERATORS[type(node)]}({self._x(node.left)}, {self._x(node.right)})"

    _add = _sub = _mul = _floordiv = _mod = _pow = _binary

    def _neg(self, node: nodes.Neg) -> str:
        return f"(-{self._x(node.node)})"

    def _concat(self, node: nodes.Concat) -> str:
        return f"({' + '.join(f'$.str({self._x(each)})' for each in node.nodes)})"

    def _tuple(self, node: nodes.Tuple | nodes.List) -> str:
        return f"[{', '.join(self._x(each) for each in node.items)}]"

    _list = _tuple

    def _dict(self, node: nodes.Dict) -> str:
        return f"new $.Dict([{', '.join(f'[{self._x(pair.key)}, {self._x(pair.value)}]' for pair in node.items)}])"


class _Template(_Expressions):
    """Translates one template."""

    def write(self, root: nodes.Template) -> str:
        return self._function("s0", root.body)

    def _function(self, parameter: str, body: Sequence[nodes.Node]) -> str:
        return f'({parameter}) => {{ let o = ""; {self._body(body)} return o; }}'

    def _body(self, body: Sequence[nodes.Node]) -> str:
        return "".join(text for node in body for text in self._statement(node))

    def _statement(self, node: nodes.Node) -> Iterator[str]:
        writer = getattr(self, f"_on_{type(node).__name__.lower()}", None)
        if writer is None:
            raise self._error(node)
        yield writer(node)

    def _on_output(self, node: nodes.Output) -> str:
        texts = [(self._x(part), isinstance(part, nodes.TemplateData)) for part in node.nodes]
        parts = [x if is_text else f"$.str({x})" for x, is_text in texts]
        return f"o += {' + '.join(parts)};\n"

    def _on_if(self, node: nodes.If) -> str:
        text = f"if ({self._condition(node.test)}) {{ {self._body(node.body)}}}"
        for each in node.elif_:
            text += f" else if ({self._condition(each.test)}) {{ {self._body(each.body)}}}"
        return f"{text} else {{ {self._body(node.else_)}}}\n" if node.else_ else f"{text}\n"

    def _on_for(self, node: nodes.For) -> str:
        if node.else_ or node.recursive:
            raise self._error(node, "for … else and recursive loops are not translated")
        values, outer = self._x(node.iter), self._scope
        self.depth += 1
        scope = f"const {self._scope} = inner({outer});"
        target = self._assigned(node.target, "x")
        test = f", (x) => {{ {scope} {target} return {self._condition(node.test)}; }}" if node.test else ""
        body = f"{scope} {self._scope}.loop = loop; {target} {self._body(node.body)}"
        self.depth -= 1
        return f"for (const [x, loop] of each({values}{test})) {{ {body}}}\n"

    def _on_assign(self, node: nodes.Assign) -> str:
        if isinstance(node.target, nodes.NSRef):
            return f"{self._get(node.target.name)}.set({json.dumps(node.target.attr)}, {self._x(node.node)});\n"
        if isinstance(node.target, nodes.Name):
            return f"{self._scope}.{node.target.name} = {self._x(node.node)};\n"
        return f"{{ const x = {self._x(node.node)}; {self._assigned(node.target, 'x')} }}\n"

    def _on_assignblock(self, node: nodes.AssignBlock) -> str:
        if node.filter is not None or not isinstance(node.target, nodes.Name):
            raise self._error(node)
        scope = self._scope
        self.depth += 1
        body = f'const {self._scope} = inner({scope}); let o = ""; {self._body(node.body)} return o;'
        self.depth -= 1
        return f"{scope}.{node.target.name} = (() => {{ {body} }})();\n"

    def _assigned(self, target: nodes.Node, value: str) -> str:
        if isinstance(target, nodes.Name):
            return f"{self._scope}.{target.name} = {value};"
        if isinstance(target, nodes.Tuple):
            return " ".join(self._assigned(each, f"$.item({value}, {i})") for i, each in enumerate(target.items))
        raise self._error(target)

    def _on_macro(self, node: nodes.Macro) -> str:
        return f"{self._scope}.{node.name} = {self._macro(node)};\n"

    def _macro(self, node: nodes.Macro | nodes.CallBlock) -> str:
        names, scope = [argument.name for argument in node.args], self._scope
        self.depth += 1
        inner, body = self._scope, self._body(node.body)
        given = zip(names[len(names) - len(node.defaults) :], node.defaults, strict=True)
        defaults = ", ".join(f"{name}: ({inner}) => {self._x(default)}" for name, default in given)
        self.depth -= 1
        text = f'({inner}) => {{ let o = ""; {body} return o; }}'
        return f"macro({scope}, {json.dumps(' '.join(names))}, {{ {defaults} }}, {text})"

    def _on_callblock(self, node: nodes.CallBlock) -> str:
        return f"o += $.str({self._call(node.call, self._macro(node))});\n"

    def _on_include(self, node: nodes.Include) -> str:
        if node.ignore_missing or not node.with_context:
            raise self._error(node)
        return f"o += include({self._named(node.template)}, {self._scope});\n"

    def _named(self, template: nodes.Node) -> str:
        own = self.own.get(template.value) if isinstance(template, nodes.Const) else None
        return json.dumps(own) if own else self._x(template)

    def _on_import(self, node: nodes.Import) -> str:
        self.modules.add(node.target)
        context = self._scope if node.with_context else "null"
        return f"{self._scope}.{node.target} = module({self._named(node.template)}, {context});\n"
