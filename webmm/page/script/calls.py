"""Translation of calls, lambdas and comprehensions."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence

from webmm.page.script import runtime
from webmm.page.script.expressions import Expressions, Scope, is_super, local
from webmm.page.script.names import Name, ScriptError
from webmm.page.script.waiting import is_awaited_call, waits

KEYED = ("max", "min", "sorted")  # builtins that accept key, default or reverse
EAGER = ("tuple", "list", "sum", "max", "min", "sorted", "set", "frozenset", "dict")  # they consume a whole generator
NAMED = ("argmax", "get_type_hints", "replace", "stack", "sum")  # their last argument is an object of keywords


class Calls(Expressions):
    """Translates calls, lambdas and comprehensions."""

    # Functions

    def _lambda(self, node: ast.Lambda, scope: Scope) -> str:
        if node.args.defaults or node.args.kwonlyargs or node.args.vararg or node.args.kwarg:
            raise ScriptError(scope.module, node, "a lambda with defaults, * or ** is not translated")
        names = [argument.arg for argument in node.args.args]
        with self.within_arrow():
            return f"({', '.join(map(local, names))}) => {self.write(node.body, scope.within(set(names)))}"

    def _call(self, node: ast.Call, scope: Scope) -> str:
        if not _waits(node, scope):
            return self._plain_call(node, scope)
        if self.arrows:
            raise ScriptError(scope.module, node, f"{ast.unparse(node.func)}() waits: call it in a statement or a loop")
        return f"(await {self._plain_call(node, scope)})"

    def _plain_call(self, node: ast.Call, scope: Scope) -> str:
        function = node.func
        if isinstance(function, ast.Name) and function.id not in scope.variables:
            return self._called_by_name(function, node, scope)
        if isinstance(function, ast.Attribute):
            return self._called_method(function, node, scope)
        return self._called(self.write(function, scope), node, scope)

    def _called(self, function: str, node: ast.Call, scope: Scope) -> str:
        """Return a call of a value that may be a class or a function."""
        return f"$.call({function}, [{self._all(node.args, scope)}]{self._keywords(node, scope)})"

    def _keywords(self, node: ast.Call, scope: Scope) -> str:
        if not node.keywords:
            return ""
        if all(keyword.arg for keyword in node.keywords):
            return f", {{ {self._named(node.keywords, scope)} }}"
        parts = [
            f"{{ {self._named([keyword], scope)} }}" if keyword.arg else self.write(keyword.value, scope)
            for keyword in node.keywords
        ]
        return f", {parts[0]}" if len(parts) == 1 else f", $.kwargs({', '.join(parts)})"

    def _named(self, keywords: Sequence[ast.keyword], scope: Scope) -> str:
        return ", ".join(f"{keyword.arg}: {self.write(keyword.value, scope)}" for keyword in keywords)

    def _called_by_name(self, function: ast.Name, node: ast.Call, scope: Scope) -> str:
        found = scope.refer(function.id, function)
        if isinstance(found, Name):
            return self._called_definition(found, node, scope)
        if function.id == "isinstance":
            return self._isinstance(node, scope)
        if function.id in KEYED and node.keywords:
            return self._called_with_key(function.id, node, scope)
        if function.id == "zip":
            strict = next((k.value for k in node.keywords if k.arg == "strict"), ast.Constant(False))
            return f"$.zipped({self.write(strict, scope)}, [{self._all(node.args, scope)}])"
        if function.id == "dict" and node.keywords:
            return f"$.dict({self._all(node.args, scope) or '[]'}{self._keywords(node, scope)})"
        new = "new " if function.id.endswith("Error") else ""
        return f"{new}{found}({self._arguments(function.id, node, scope)})"

    def _arguments(self, name: str, node: ast.Call, scope: Scope) -> str:
        """Return the arguments of a function of the runtime; those in NAMED get their keywords as an object."""
        if name in EAGER and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            return self._listcomp(node.args[0], scope)
        if node.keywords and name not in NAMED:
            raise ScriptError(scope.module, node, f"keyword arguments of {name}() are not translated")
        return f"{self._all(node.args, scope)}{self._keywords(node, scope)}"

    def _called_with_key(self, name: str, node: ast.Call, scope: Scope) -> str:
        given = {keyword.arg: self.write(keyword.value, scope) for keyword in node.keywords}
        if set(given) - {"key", "default", "reverse"}:
            raise ScriptError(scope.module, node, f"{name}() accepts only the keywords key, default and reverse")
        values = self._arguments(name, ast.Call(node.func, node.args, []), scope)
        if name == "sorted":
            return f"$.sorted({values}, {given.get('key', 'null')}, {given.get('reverse', 'false')})"
        values = f"$.list({values})" if len(node.args) == 1 else f"[{values}]"
        greatest = "true" if name == "max" else "false"
        return f"$.best({greatest}, {values}, {given.get('key', 'undefined')}, {given.get('default', 'undefined')})"

    def _called_definition(self, found: Name, node: ast.Call, scope: Scope) -> str:
        """Return a call of a known function or class, with keywords converted to positional arguments."""
        name, is_class = self.use(found), isinstance(found.value, type)
        order = self.signature(found)
        spread = any(isinstance(argument, ast.Starred) for argument in node.args)
        if order is None or any(keyword.arg is None for keyword in node.keywords) or (spread and node.keywords):
            self.by_keyword.add(found.name)
            return self._called(name, node, scope)
        given = {keyword.arg: self.write(keyword.value, scope) for keyword in node.keywords}
        if unknown := [each for each in given if each not in order[len(node.args) :]]:
            raise ScriptError(scope.module, node, f"{found.name}() has no parameter {unknown[0]}")
        places = [given.pop(each, "undefined") for each in order[len(node.args) :]]
        while places and places[-1] == "undefined":
            places.pop()
        text = ", ".join(filter(None, [self._all(node.args, scope), *places]))
        return f"{'new ' if is_class else ''}{name}({text})"

    def _called_method(self, function: ast.Attribute, node: ast.Call, scope: Scope) -> str:
        owner, name = function.value, function.attr
        if isinstance(owner, ast.Name) and owner.id not in scope.variables:
            found = scope.refer(f"{owner.id}.{name}", function)
            if isinstance(found, str) and found:
                return f"{found}({self._arguments(name, node, scope)})"
            if isinstance(found, Name) and found.name:
                return self._called_definition(found, node, scope)
        if is_super(owner):
            return f"{self._attribute(function, scope)}({self._arguments(name, node, scope)})"
        x = self.write(owner, scope)
        if name == "_replace":  # of a named tuple
            return f"$.dataclasses.replace({x}{self._keywords(node, scope)})"
        if name in runtime.METHODS:
            values = self._listcomp(node.args[0], scope) if _takes_all(name, node) else self._all(node.args, scope)
            return runtime.method(name, x, values)
        self.attribute(name, scope.module, function)
        if node.keywords:
            self.by_keyword.add(name)
            return f"$.invoke({x}, {json.dumps(name)}, [{self._all(node.args, scope)}]{self._keywords(node, scope)})"
        return f"{x}.{name}({self._all(node.args, scope)})"

    # Comprehensions

    def _generatorexp(self, node: ast.GeneratorExp, scope: Scope) -> str:
        """Return a lazy generator; the first iterable is evaluated at once."""
        inner = scope.within(_targets(node))
        with self.within_arrow():
            text = f"yield {self.write(node.elt, inner)};"
            for i, part in reversed(list(enumerate(node.generators))):
                for test in reversed(part.ifs):
                    text = f"if ({self.truth(test, inner)}) {text}"
                iterable = self.write(part.iter, inner) if i else "$all"
                text = f"for (const {self._target(part.target, inner)} of $.iter({iterable})) {text}"
        return f"(function* ($all) {{ {text} }})({self.write(node.generators[0].iter, scope)})"

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.expr, scope: Scope) -> str:
        assert isinstance(node, ast.ListComp | ast.GeneratorExp)
        target = node.generators[0].target
        inner = scope.within(_names(target))
        if len(node.generators) > 1 or not _waits_within(node.elt, inner):
            return self._rows(node.generators, lambda inner: self.write(node.elt, inner), scope)
        place = self._target(target, inner)
        values = self._rows(node.generators, lambda _: place, scope)
        return f"(await $.awaited({values}, async ({place}) => {self.write(node.elt, inner)}))"

    def _rows(
        self, generators: Sequence[ast.comprehension], element: Callable[[Scope], str], scope: Scope, depth: int = 0
    ) -> str:
        """Return an array with the value of `element` for each iteration of the loops."""
        part, *others = generators
        inner = scope.within(_names(part.target))
        target = self._target(part.target, inner)
        text = f"$.list({self.write(part.iter, scope)})"
        with self.within_arrow():
            for test in part.ifs:
                text += f".filter(({target}) => {self.truth(test, inner)})"
            if others:
                return f"{text}.flatMap(({target}) => {self._rows(others, element, inner, depth + 1)})"
        with self.within_arrow():
            made = element(inner)
        return text if made == target else f"{text}.map(({target}) => {f'({made})' if made.startswith('{') else made})"

    def _setcomp(self, node: ast.SetComp, scope: Scope) -> str:
        return f"$.set({self._rows(node.generators, lambda inner: self.write(node.elt, inner), scope)})"

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> str:
        def entry(inner: Scope) -> str:
            return f"[{self.write(node.key, inner)}, {self.write(node.value, inner)}]"

        return f"new $.Dict({self._rows(node.generators, entry, scope)})"

    def _target(self, node: ast.expr, scope: Scope) -> str:
        """Return the target of a loop or an assignment."""
        if isinstance(node, ast.Name):
            return local(node.id)
        if not isinstance(node, ast.Tuple | ast.List):
            raise ScriptError(scope.module, node, f"an assignment to {type(node).__name__} is not translated")
        places = []
        for each in node.elts:
            star = isinstance(each, ast.Starred)
            inner = each.value if isinstance(each, ast.Starred) else each
            if star and each is not node.elts[-1]:
                raise ScriptError(scope.module, node, "a starred target must be the last one")
            ignored = isinstance(inner, ast.Name) and inner.id == "_"
            places.append("" if ignored else f"{'...' if star else ''}{self._target(inner, scope)}")
        return f"[{', '.join(places)}]"


def _waits(node: ast.Call, scope: Scope) -> bool:
    """Tell whether a call is one of a function that waits."""
    if is_awaited_call(node) or not isinstance(node.func, ast.Name):
        return is_awaited_call(node)
    if node.func.id in scope.variables:
        return node.func.id in scope.waiting
    found = scope.refer(node.func.id, node.func)
    return isinstance(found, Name) and waits(found)


def _waits_within(node: ast.expr, scope: Scope) -> bool:
    return any(isinstance(each, ast.Call) and _waits(each, scope) for each in ast.walk(node))


def _takes_all(method: str, node: ast.Call) -> bool:
    return method == "join" and isinstance(node.args[0], ast.GeneratorExp)


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _targets(node: ast.GeneratorExp) -> set[str]:
    return set().union(*(_names(part.target) for part in node.generators))
