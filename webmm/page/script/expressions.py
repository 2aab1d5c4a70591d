"""Translation of expressions."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from webmm.page.script import runtime
from webmm.page.script.names import Name, ScriptError

OPERATORS: dict[type[ast.AST], str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod"},
    **{ast.Pow: "pow", ast.LShift: "lshift", ast.BitAnd: "bitand", ast.BitOr: "bitor"},
}
COMPARISONS: dict[type[ast.AST], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
RESERVED = frozenset(
    (
        *("arguments", "await", "break", "case", "catch", "const", "continue", "debugger", "default", "delete", "do"),
        *("enum", "eval", "export", "extends", "function", "if", "in", "instanceof", "interface", "let", "new", "of"),
        *("package", "private", "protected", "public", "static", "super", "switch", "this", "throw", "try", "typeof"),
        *("var", "void", "while", "with", "yield"),
    )
)


def local(name: str) -> str:
    """Return the JavaScript name of a variable."""
    return f"{name}_" if name in RESERVED or name.startswith("$") else name


class Scope:
    """The meaning of names within a function: its variables, and the module's globals."""

    def __init__(
        self,
        module: str,
        cls: str,
        variables: set[str],
        refer: Callable[[str, ast.AST], Name | str],
        this: str = "",
        waiting: frozenset[str] = frozenset(),
    ) -> None:
        self.module = module
        self.cls = cls  # the class that contains the function; "" for none
        self.variables = variables
        self.refer = refer
        self.this = this  # the variable that is `this` in JavaScript; "" for none
        self.waiting = waiting  # the functions within the function that wait

    def within(self, more: set[str], this: str = "", waiting: frozenset[str] = frozenset()) -> Scope:
        """Return the scope of a nested function or comprehension, with additional variables."""
        names = (self.waiting - more) | waiting
        return Scope(self.module, self.cls, self.variables | more, self.refer, this or self.this, names)

    def variable(self, name: str) -> str:
        """Return the JavaScript expression for a variable."""
        return "this" if name == self.this else local(name)


class Expressions:
    """Translates expressions; `use` returns a definition's identifier, `attribute` is called for every attribute."""

    def __init__(
        self,
        use: Callable[[Name], str],
        signature: Callable[[Name], Sequence[str] | None],
        attribute: Callable[[str, str, ast.AST], None],
    ) -> None:
        self.use = use
        self.signature = signature
        self.by_keyword: set[str] = set()  # names of functions and methods that are called with keywords at run time
        self.attribute = attribute
        self.arrows = 0  # functions of JavaScript's around the expression that Python does not have; they cannot wait

    @contextmanager
    def within_arrow(self) -> Iterator[None]:
        """Write expressions in a function of JavaScript's that Python does not have."""
        self.arrows += 1
        yield
        self.arrows -= 1

    def write(self, node: ast.expr, scope: Scope) -> str:
        """Return the translated expression; raises ScriptError if it is not in the supported subset."""
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
            return runtime.quoted(node.value) if isinstance(node.value, str) else json.dumps(node.value)
        raise ScriptError(scope.module, node, f"the constant {node.value!r} is not translated")

    def _name(self, node: ast.Name, scope: Scope) -> str:
        if node.id in scope.variables:
            return scope.variable(node.id)
        found = scope.refer(node.id, node)
        return found if isinstance(found, str) else self.use(found)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> str:
        if isinstance(node.value, ast.Name) and node.value.id not in scope.variables:
            found = scope.refer(f"{node.value.id}.{node.attr}", node)
            if isinstance(found, str) and found:
                return found
            if isinstance(found, Name) and found.name:
                return self.use(found)
        if is_super(node.value):
            return f"$.parent({scope.cls}, {self._self(scope)}, {json.dumps(node.attr)})"
        self.attribute(node.attr, scope.module, node)
        if node.attr == "__class__":
            return f"{self.write(node.value, scope)}.constructor"
        return f"{self.write(node.value, scope)}.{node.attr}"

    @staticmethod
    def _self(scope: Scope) -> str:
        return scope.variable("self" if "self" in scope.variables else "cls")

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
        first = self.write(node.values[0], scope)
        with self.within_arrow():
            *others, last = (self.write(each, scope) for each in node.values[1:])
        name = "or" if isinstance(node.op, ast.Or) else "and"
        for text in reversed([first, *others]):
            last = f"$.{name}({text}, () => {last})"
        return last

    def _compare(self, node: ast.Compare, scope: Scope) -> str:
        operands = [node.left, *node.comparators]
        if any(not isinstance(each, ast.Name | ast.Attribute | ast.Constant) for each in operands[1:-1]):
            raise ScriptError(scope.module, node, "the middle operands of a chained comparison must be names")
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

    def _isinstance(self, node: ast.Call, scope: Scope) -> str:
        """Return the question whether a variable is an instance of a class, or of one of several."""
        x, classes = node.args
        if not isinstance(x, ast.Name | ast.Attribute | ast.Constant):
            raise ScriptError(scope.module, node, "isinstance() is asked of variables only")
        given, asked = self.write(x, scope), classes.elts if isinstance(classes, ast.Tuple) else [classes]
        known = {f"$.{name}": text for name, text in runtime.INSTANCES.items()}
        kinds = [self.write(each, scope) for each in asked]
        return f"({' || '.join(known.get(kind, f'{{x}} instanceof {kind}').format(x=given) for kind in kinds)})"

    # Elements

    def _subscript(self, node: ast.Subscript, scope: Scope) -> str:
        x = self.write(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            if node.slice.step is not None:
                raise ScriptError(scope.module, node, "a slice with a step is not translated")
            ends = (node.slice.lower, node.slice.upper)
            return f"{x}{runtime.sliced(*(None if end is None else self.write(end, scope) for end in ends))}"
        return f"$.item({x}, {self.write(node.slice, scope)})"


def _quoted(text: str) -> str:
    """Return `text` escaped for a template literal."""
    for plain, quoted in (("\\", "\\\\"), ("`", "\\`"), ("${", "\\${"), ("\n", "\\n"), ("$.", "\\u0024.")):
        text = text.replace(plain, quoted)
    return text


def is_super(node: ast.expr) -> bool:
    """Tell whether the expression is `super()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_bool(node: ast.expr) -> bool:
    """Tell whether the expression is always a bool."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_bool, node.values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("isinstance", "issubclass", "any", "all", "bool", "hasattr")
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return isinstance(node, ast.Compare) or is_not or (isinstance(node, ast.Constant) and isinstance(node.value, bool))
