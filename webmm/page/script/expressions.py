"""Expressions of Python as JavaScript."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence

from webmm.page.script import runtime
from webmm.page.script.names import Name, ScriptError

OPERATORS: dict[type[ast.AST], str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod"},
    **{ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "bitand", ast.BitOr: "bitor"},
}
COMPARISONS: dict[type[ast.AST], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
KEYED = ("max", "min", "sorted")  # builtins that take keywords
EAGER = ("tuple", "list", "sum", "max", "min", "sorted", "set", "frozenset", "dict")  # they take all of a generator
NAMED = ("argmax", "get_type_hints", "replace", "stack", "sum")  # they take keywords as one object, their last argument
RESERVED = frozenset(
    (
        *("arguments", "await", "break", "case", "catch", "const", "continue", "debugger", "default", "delete", "do"),
        *("enum", "eval", "export", "extends", "function", "if", "in", "instanceof", "interface", "let", "new", "of"),
        *("package", "private", "protected", "public", "static", "super", "switch", "this", "throw", "try", "typeof"),
        *("var", "void", "while", "with", "yield"),
    )
)


def local(name: str) -> str:
    """Return a variable's name in JavaScript."""
    return f"{name}_" if name in RESERVED or name.startswith("$") else name


class Scope:
    """What names mean within a function: its variables, and what stands at the top of the module."""

    def __init__(self, module: str, cls: str, variables: set[str], refer: Callable[[str, ast.AST], Name | str]) -> None:
        self.module = module
        self.cls = cls  # in whose body the function stands; "" for none
        self.variables = variables
        self.refer = refer

    def within(self, more: set[str]) -> Scope:
        """Return the scope of a function or comprehension inside, with variables of its own."""
        return Scope(self.module, self.cls, self.variables | more, self.refer)


class Expressions:
    """Writes expressions; `use` gives the identifier of a definition, `attribute` hears of every attribute read."""

    def __init__(
        self,
        use: Callable[[Name], str],
        signature: Callable[[Name], Sequence[str] | None],
        attribute: Callable[[str, str, ast.AST], None],
    ) -> None:
        self.use = use
        self.signature = signature
        self.attribute = attribute

    def write(self, node: ast.expr | ast.Slice, scope: Scope) -> str:
        """Return the expression; raises ScriptError for one that the subset does not have."""
        writer = getattr(self, f"_{type(node).__name__.lower()}", None)
        if writer is None:
            raise ScriptError(scope.module, node, f"{type(node).__name__} is not translated")
        text: str = writer(node, scope)
        return text

    def truth(self, node: ast.expr, scope: Scope) -> str:
        """Return the expression as a condition."""
        if isinstance(node, ast.BoolOp):
            sign = " || " if isinstance(node.op, ast.Or) else " && "
            return f"({sign.join(self.truth(each, scope) for each in node.values)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!{self.truth(node.operand, scope)}"
        text = self.write(node, scope)
        return text if _is_bool(node) else f"$.truth({text})"

    def _all(self, nodes: Sequence[ast.expr], scope: Scope) -> str:
        return ", ".join(self.write(node, scope) for node in nodes)

    # Atoms

    def _constant(self, node: ast.Constant, scope: Scope) -> str:
        if isinstance(node.value, str | int | float | None):
            return json.dumps(node.value, ensure_ascii=False)
        raise ScriptError(scope.module, node, f"the constant {node.value!r} is not translated")

    def _name(self, node: ast.Name, scope: Scope) -> str:
        if node.id in scope.variables:
            return local(node.id)
        found = scope.refer(node.id, node)
        return found if isinstance(found, str) else self.use(found)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> str:
        if isinstance(node.value, ast.Name) and node.value.id not in scope.variables:
            found = scope.refer(f"{node.value.id}.{node.attr}", node)
            if isinstance(found, str) and found:
                return found
            if isinstance(found, Name) and found.name:
                return self.use(found)
        if _is_super(node.value):
            return f"$.parent({scope.cls}, {self._self(scope)}, {json.dumps(node.attr)})"
        self.attribute(node.attr, scope.module, node)
        if node.attr == "__class__":
            return f"{self.write(node.value, scope)}.constructor"
        return f"{self.write(node.value, scope)}.{node.attr}"

    @staticmethod
    def _self(scope: Scope) -> str:
        return "self" if "self" in scope.variables else "cls"

    def _starred(self, node: ast.Starred, scope: Scope) -> str:
        return f"...$.iter({self.write(node.value, scope)})"

    def _tuple(self, node: ast.Tuple | ast.List, scope: Scope) -> str:
        return f"[{self._all(node.elts, scope)}]"

    _list = _tuple

    def _set(self, node: ast.Set, scope: Scope) -> str:
        return f"$.set([{self._all(node.elts, scope)}])"

    def _dict(self, node: ast.Dict, scope: Scope) -> str:
        entries = [
            f"...{self.write(value, scope)}"
            if key is None
            else f"[{self.write(key, scope)}, {self.write(value, scope)}]"
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return f"new $.Dict([{', '.join(entries)}])"

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> str:
        parts = (
            _quoted(str(part.value)) if isinstance(part, ast.Constant) else f"${{{self.write(part, scope)}}}"
            for part in node.values
        )
        return f"`{''.join(parts)}`"

    def _formattedvalue(self, node: ast.FormattedValue, scope: Scope) -> str:
        text = self.write(node.value, scope)
        if node.conversion == ord("r"):
            text = f"$.repr({text})"
        elif node.conversion != -1:
            raise ScriptError(scope.module, node, f"the conversion !{chr(node.conversion)} is not translated")
        if node.format_spec is not None:
            return f"$.format({text}, {self.write(node.format_spec, scope)})"
        return text if text.startswith("$.repr(") else f"$.str({text})"

    # Operators

    def _binop(self, node: ast.BinOp, scope: Scope) -> str:
        name = OPERATORS.get(type(node.op))
        if name is None:
            raise ScriptError(scope.module, node, f"the operator {type(node.op).__name__} is not translated")
        a, b = self.write(node.left, scope), self.write(node.right, scope)
        return f"$.{name}({a}, {b})"

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> str:
        if isinstance(node.op, ast.Not):
            return f"!{self.truth(node.operand, scope)}"
        if isinstance(node.op, ast.USub):
            return f"(-{self.write(node.operand, scope)})"
        raise ScriptError(scope.module, node, f"the operator {type(node.op).__name__} is not translated")

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> str:
        if all(map(_is_bool, node.values)):
            return self.truth(node, scope)
        *first, last = (self.write(each, scope) for each in node.values)
        name = "or" if isinstance(node.op, ast.Or) else "and"
        for text in reversed(first):
            last = f"$.{name}({text}, () => {last})"
        return last

    def _compare(self, node: ast.Compare, scope: Scope) -> str:
        operands = [node.left, *node.comparators]
        if any(not isinstance(each, ast.Name | ast.Attribute | ast.Constant) for each in operands[1:-1]):
            raise ScriptError(scope.module, node, "a comparison of several has names in its middle")
        parts = [self._compared(op, a, b, scope) for op, a, b in zip(node.ops, operands, operands[1:], strict=False)]
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def _compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr, scope: Scope) -> str:
        a, b = self.write(left, scope), self.write(right, scope)
        if isinstance(op, ast.Is | ast.IsNot):
            return f"({a} {'===' if isinstance(op, ast.Is) else '!=='} {b})"
        if isinstance(op, ast.In | ast.NotIn):
            return f"{'!' if isinstance(op, ast.NotIn) else ''}$.contains({a}, {b})"
        if isinstance(op, ast.Eq | ast.NotEq):
            if _is_text(left) or _is_text(right):
                return f"({a} {'===' if isinstance(op, ast.Eq) else '!=='} {b})"
            return f"{'' if isinstance(op, ast.Eq) else '!'}$.eq({a}, {b})"
        return f"$.{COMPARISONS[type(op)]}({a}, {b})"

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> str:
        condition = self.truth(node.test, scope)
        return f"({condition} ? {self.write(node.body, scope)} : {self.write(node.orelse, scope)})"

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> str:
        return f"({local(node.target.id)} = {self.write(node.value, scope)})"

    # Elements

    def _subscript(self, node: ast.Subscript, scope: Scope) -> str:
        x = self.write(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            return f"$.slice({x}, {', '.join('null' if end is None else self.write(end, scope) for end in ends)})"
        return f"$.item({x}, {self.write(node.slice, scope)})"

    def _slice(self, node: ast.Slice, scope: Scope) -> str:
        """Return a range within several indices, as NumPy's arrays have them."""
        ends = ("null" if end is None else self.write(end, scope) for end in (node.lower, node.upper))
        return f"new $.Slice({', '.join(ends)})"

    # Functions

    def _lambda(self, node: ast.Lambda, scope: Scope) -> str:
        if node.args.defaults or node.args.kwonlyargs or node.args.vararg or node.args.kwarg:
            raise ScriptError(scope.module, node, "a lambda has plain parameters")
        names = [argument.arg for argument in node.args.args]
        return f"({', '.join(map(local, names))}) => {self.write(node.body, scope.within(set(names)))}"

    def _call(self, node: ast.Call, scope: Scope) -> str:
        function = node.func
        if isinstance(function, ast.Name) and function.id not in scope.variables:
            return self._called_by_name(function, node, scope)
        if isinstance(function, ast.Attribute):
            return self._called_method(function, node, scope)
        return self._called(self.write(function, scope), node, scope)

    def _called(self, function: str, node: ast.Call, scope: Scope) -> str:
        """Return a call of something that may be a class as well as a function."""
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
        """Return what a function of the runtime takes; of keywords, `replace()` takes what it changes."""
        if name in EAGER and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            return self._listcomp(node.args[0], scope)
        if node.keywords and name not in NAMED:
            raise ScriptError(scope.module, node, f"{name}() takes no keywords here")
        return f"{self._all(node.args, scope)}{self._keywords(node, scope)}"

    def _called_with_key(self, name: str, node: ast.Call, scope: Scope) -> str:
        given = {keyword.arg: self.write(keyword.value, scope) for keyword in node.keywords}
        if set(given) - {"key", "default", "reverse"}:
            raise ScriptError(scope.module, node, f"{name}() takes key, default and reverse")
        values = self._arguments(name, ast.Call(node.func, node.args, []), scope)
        if name == "sorted":
            return f"$.sorted({values}, {given.get('key', 'null')}, {given.get('reverse', 'false')})"
        values = f"$.list({values})" if len(node.args) == 1 else f"[{values}]"
        greatest = "true" if name == "max" else "false"
        return f"$.best({greatest}, {values}, {given.get('key', 'undefined')}, {given.get('default', 'undefined')})"

    def _called_definition(self, found: Name, node: ast.Call, scope: Scope) -> str:
        """Return a call of a function or class that is known, whose keywords find their places here."""
        name, is_class = self.use(found), isinstance(found.value, type)
        order = self.signature(found)
        spread = any(isinstance(argument, ast.Starred) for argument in node.args)
        if order is None or any(keyword.arg is None for keyword in node.keywords) or (spread and node.keywords):
            return self._called(name, node, scope)
        given = {keyword.arg: self.write(keyword.value, scope) for keyword in node.keywords}
        if lost := [each for each in given if each not in order[len(node.args) :]]:
            raise ScriptError(scope.module, node, f"{found.name}() takes no {lost[0]}")
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
        if _is_super(owner):
            return f"{self._attribute(function, scope)}({self._arguments(name, node, scope)})"
        x = self.write(owner, scope)
        if name in runtime.METHODS:
            values = self._listcomp(node.args[0], scope) if _takes_all(name, node) else self._all(node.args, scope)
            return f"$.method({', '.join(filter(None, [json.dumps(name), x, values]))})"
        self.attribute(name, scope.module, function)
        if node.keywords:
            return f"$.invoke({x}, {json.dumps(name)}, [{self._all(node.args, scope)}]{self._keywords(node, scope)})"
        return f"{x}.{name}({self._all(node.args, scope)})"

    # Comprehensions

    def _generatorexp(self, node: ast.GeneratorExp, scope: Scope) -> str:
        """Return a generator, which computes what is asked for; the first iterable is evaluated at once."""
        inner = scope.within(_targets(node))
        text = f"yield {self.write(node.elt, inner)};"
        for i, part in reversed(list(enumerate(node.generators))):
            for test in reversed(part.ifs):
                text = f"if ({self.truth(test, inner)}) {text}"
            iterable = self.write(part.iter, inner) if i else "$all"
            text = f"for (const {self._target(part.target, inner)} of $.iter({iterable})) {text}"
        return f"(function* ($all) {{ {text} }})({self.write(node.generators[0].iter, scope)})"

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.expr, scope: Scope) -> str:
        assert isinstance(node, ast.ListComp | ast.GeneratorExp)
        return self._rows(node.generators, lambda inner: self.write(node.elt, inner), scope)

    def _rows(
        self, generators: Sequence[ast.comprehension], element: Callable[[Scope], str], scope: Scope, depth: int = 0
    ) -> str:
        """Return an array of `element` for each round of the loops."""
        part, *others = generators
        inner = scope.within(_names(part.target))
        target = self._target(part.target, inner)
        text = f"$.list({self.write(part.iter, scope)})"
        for test in part.ifs:
            text += f".filter(({target}) => {self.truth(test, inner)})"
        if others:
            return f"{text}.flatMap(({target}) => {self._rows(others, element, inner, depth + 1)})"
        made = element(inner)
        return text if made == target else f"{text}.map(({target}) => {f'({made})' if made.startswith('{') else made})"

    def _setcomp(self, node: ast.SetComp, scope: Scope) -> str:
        return f"$.set({self._rows(node.generators, lambda inner: self.write(node.elt, inner), scope)})"

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> str:
        def entry(inner: Scope) -> str:
            return f"[{self.write(node.key, inner)}, {self.write(node.value, inner)}]"

        return f"new $.Dict({self._rows(node.generators, entry, scope)})"

    def _target(self, node: ast.expr, scope: Scope, unpacked: bool = False) -> str:
        """Return what a loop or an assignment binds; of what is `unpacked`, a star takes one value, an array."""
        if isinstance(node, ast.Name):
            return local(node.id)
        if not isinstance(node, ast.Tuple | ast.List):
            raise ScriptError(scope.module, node, f"{type(node).__name__} is no target here")
        places = []
        for each in node.elts:
            star = isinstance(each, ast.Starred)
            inner = each.value if isinstance(each, ast.Starred) else each
            if star and not unpacked and each is not node.elts[-1]:
                raise ScriptError(scope.module, node, "a star stands last here")
            ignored = isinstance(inner, ast.Name) and inner.id == "_"
            places.append("" if ignored else f"{'...' if star and not unpacked else ''}{self._target(inner, scope)}")
        return f"[{', '.join(places)}]"


def _quoted(text: str) -> str:
    """Return what a template literal holds."""
    for plain, quoted in (("\\", "\\\\"), ("`", "\\`"), ("${", "\\${"), ("\n", "\\n")):
        text = text.replace(plain, quoted)
    return text


def _takes_all(method: str, node: ast.Call) -> bool:
    return method == "join" and isinstance(node.args[0], ast.GeneratorExp)


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _targets(node: ast.GeneratorExp) -> set[str]:
    return set().union(*(_names(part.target) for part in node.generators))


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_bool(node: ast.expr) -> bool:
    """Tell whether the expression is true or false, whatever its operands."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_bool, node.values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("isinstance", "issubclass", "any", "all", "bool", "hasattr")
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return isinstance(node, ast.Compare) or is_not or (isinstance(node, ast.Constant) and isinstance(node.value, bool))
