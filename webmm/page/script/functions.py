"""Translation of statements and functions."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence

from webmm.page.script.calls import Calls
from webmm.page.script.expressions import Scope, local
from webmm.page.script.names import HostError, ScriptError, is_provided
from webmm.page.script.waiting import node_waits

INDENT = " "
METHOD_DECORATORS = {"property", "cached_property", "classmethod", "staticmethod", "abstractmethod"}
FUNCTION_DECORATORS = {"cache", "lru_cache"}


class Functions(Calls):
    """Translates functions, statement by statement."""

    def function(self, node: ast.FunctionDef, scope: Scope) -> str:
        """Return a top-level function, without its export; raises HostError if it uses Python-only names."""
        decorators = {decorator(each) for each in node.decorator_list}
        if unknown := decorators - FUNCTION_DECORATORS:
            raise HostError(unknown.pop())
        if is_provided(scope.module, node.name):
            raise HostError(node.name)
        text = self._written(node, scope, f"function{_star(node)} {local(node.name)}", node.args)
        return f"$.remembered({text})" if decorators else text

    def method(self, node: ast.FunctionDef, scope: Scope) -> str:
        """Return a method of a class; raises HostError if it uses Python-only names."""
        decorators = {decorator(each) for each in node.decorator_list}
        if unknown := decorators - METHOD_DECORATORS:
            raise ScriptError(scope.module, node, f"the decorator {unknown.pop()} is not translated")
        arguments = node.args
        owner = None
        if "staticmethod" not in decorators:
            owner = arguments.args[0].arg
            arguments = ast.arguments(**{**dict(ast.iter_fields(arguments)), "args": arguments.args[1:]})
        is_static = decorators & {"classmethod", "staticmethod"}
        is_property = decorators & {"property", "cached_property"}
        head = f"{'static ' if is_static else ''}{'get ' if is_property else _star(node)[:1]}{node.name}"
        cached = node.name if "cached_property" in decorators else ""
        return self._written(node, scope, head, arguments, owner, cached)

    def _written(
        self,
        node: ast.FunctionDef,
        scope: Scope,
        head: str,
        given: ast.arguments,
        owner: str | None = None,
        cached: str = "",
    ) -> str:
        _refuse_hosts(node, scope)
        names = parameters(given, scope)
        this = "" if _has_functions(node) else owner or ""
        inner = scope.within(
            {*names, *([owner] if owner else []), *assigned(node.body)}, this, _waiting(node, scope.module)
        )
        waits = node_waits(scope.module, node)
        if waits and (owner or _star(node)):
            raise ScriptError(scope.module, node, "a method or a generator that waits is not translated")
        head = f"{'async ' if waits else ''}{head}({self._parameters(given, scope)})"
        locals_ = sorted(assigned(node.body) - {*names, "_"})
        lines = [f"const {local(owner)} = this;"] if owner and not this and _mentions(node, owner) else []
        lines += [f"let {', '.join(map(local, locals_))};"] if locals_ else []
        body = [line for statement in node.body for line in self._statement(statement, inner)]
        if cached:
            body = [
                f"return $.cached({inner.variable(str(owner))}, {json.dumps(cached)}, () => {{",
                *_indented(body),
                "});",
            ]
        return "\n".join([f"{head} {{", *_indented([*lines, *body]), "}"])

    def _parameters(self, given: ast.arguments, scope: Scope) -> str:
        plain = [*given.posonlyargs, *given.args]
        defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
        pairs = [*zip(plain, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
        texts = [
            local(argument.arg) if default is None else f"{local(argument.arg)} = {self.write(default, scope)}"
            for argument, default in pairs
        ]
        return ", ".join([*texts, *([f"...{local(given.vararg.arg)}"] if given.vararg else [])])

    # Statements

    def _body(self, statements: Sequence[ast.stmt], scope: Scope) -> list[str]:
        return _indented([line for statement in statements for line in self._statement(statement, scope)])

    def _statement(self, node: ast.stmt, scope: Scope) -> Iterator[str]:
        writer = getattr(self, f"_on_{type(node).__name__.lower()}", None)
        if writer is None:
            raise ScriptError(scope.module, node, f"{type(node).__name__} is not translated")
        yield from writer(node, scope)

    def _on_expr(self, node: ast.Expr, scope: Scope) -> Iterator[str]:
        value = node.value
        if isinstance(value, ast.Constant):
            return  # a docstring
        if isinstance(value, ast.Yield):
            yield f"yield {'' if value.value is None else self.write(value.value, scope)};"
        elif isinstance(value, ast.YieldFrom):
            yield f"yield* $.iter({self.write(value.value, scope)});"
        else:
            yield f"{self.write(value, scope)};"

    def _on_return(self, node: ast.Return, scope: Scope) -> Iterator[str]:
        yield f"return {'null' if node.value is None else self.write(node.value, scope)};"

    def _on_assign(self, node: ast.Assign, scope: Scope) -> Iterator[str]:
        *others, target = node.targets
        text = self.write(node.value, scope)
        if others and not all(isinstance(each, ast.Name) for each in node.targets):
            raise ScriptError(scope.module, node, "all targets of a chained assignment must be variables")
        text = "".join(f"{self._target(each, scope)} = " for each in others) + text
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            place = self.write(target.slice, scope)
            yield f"$.setItem({self.write(target.value, scope)}, {place}, {text});"
        elif isinstance(target, ast.Name):
            yield f"{local(target.id)} = {text};"
        else:
            yield f"{self._target(_star_last(target), scope)} = {_unpacked(text, target, node.value)};"

    def _on_annassign(self, node: ast.AnnAssign, scope: Scope) -> Iterator[str]:
        if node.value is not None:
            yield from self._on_assign(ast.Assign([node.target], node.value, lineno=node.lineno), scope)

    def _on_augassign(self, node: ast.AugAssign, scope: Scope) -> Iterator[str]:
        """Rebind a number or a set; raises for a list, which Python extends in place."""
        if not isinstance(node.target, ast.Name):
            raise ScriptError(scope.module, node, "the target of an augmented assignment must be a variable")
        operation = self.write(ast.BinOp(ast.Name(node.target.id), node.op, node.value), scope)
        yield f"{local(node.target.id)} = $.rebound({operation});"

    def _on_if(self, node: ast.If, scope: Scope) -> Iterator[str]:
        yield f"if ({self.truth(node.test, scope)}) {{"
        yield from self._body(node.body, scope)
        if node.orelse:
            yield "} else {"
            yield from self._body(node.orelse, scope)
        yield "}"

    def _on_for(self, node: ast.For, scope: Scope) -> Iterator[str]:
        if node.orelse:
            raise ScriptError(scope.module, node, "for … else is not translated")
        yield f"for ({self._target(node.target, scope)} of $.iter({self.write(node.iter, scope)})) {{"
        yield from self._body(node.body, scope)
        yield "}"

    def _on_while(self, node: ast.While, scope: Scope) -> Iterator[str]:
        if node.orelse:
            raise ScriptError(scope.module, node, "while … else is not translated")
        yield f"while ({self.truth(node.test, scope)}) {{"
        yield from self._body(node.body, scope)
        yield "}"

    def _on_continue(self, node: ast.Continue, scope: Scope) -> Iterator[str]:
        yield "continue;"

    def _on_delete(self, node: ast.Delete, scope: Scope) -> Iterator[str]:
        """Write nothing: the deleted variables are parameters that only subclasses use."""
        if not all(isinstance(target, ast.Name) for target in node.targets):
            raise ScriptError(scope.module, node, "the target of del must be a variable")
        yield from ()

    def _on_assert(self, node: ast.Assert, scope: Scope) -> Iterator[str]:
        message = "" if node.msg is None else self.write(node.msg, scope)
        yield f"if (!({self.truth(node.test, scope)})) throw new $.AssertionError({message});"

    def _on_raise(self, node: ast.Raise, scope: Scope) -> Iterator[str]:
        if node.exc is None:
            raise ScriptError(scope.module, node, "raise must have an exception")
        yield f"throw {self.write(node.exc, scope)};"

    def _on_try(self, node: ast.Try, scope: Scope) -> Iterator[str]:
        if node.orelse or node.finalbody or len(node.handlers) != 1 or node.handlers[0].type is None:
            raise ScriptError(scope.module, node, "try must have exactly one except clause, with a type")
        (handler,) = node.handlers
        assert handler.type is not None
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        name = local(handler.name or "error")
        caught = " || ".join(f"{name} instanceof {self.write(kind, scope)}" for kind in kinds)
        yield "try {"
        yield from self._body(node.body, scope)
        yield f"}} catch ({name}) {{"
        yield f"{INDENT}if (!({caught})) throw {name};"
        yield from self._body(handler.body, scope.within({name}))
        yield "}"

    def _on_functiondef(self, node: ast.FunctionDef, scope: Scope) -> Iterator[str]:
        text = self._written(node, scope, f"function{_star(node)}", node.args)
        yield from f"{local(node.name)} = {text};".split("\n")

    def _on_pass(self, node: ast.Pass, scope: Scope) -> Iterator[str]:
        yield from ()


def _refuse_hosts(function: ast.FunctionDef, scope: Scope) -> None:
    """Raise HostError if a function uses Python-only names, before its translation can raise ScriptError."""
    nodes = [node for statement in function.body for node in _evaluated(statement)]
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in [*ast.walk(function), *nodes] if isinstance(node, ast.arg)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    bound |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name} | {"super"}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            raise HostError(ast.unparse(node))
        if isinstance(node, ast.Name) and node.id not in bound | scope.variables:
            scope.refer(node.id, node)
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=member) if owner not in bound | scope.variables:
                scope.refer(f"{owner}.{member}", node)  # raises for a module's member that the runtime lacks


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated, which excludes annotations."""
    yield node
    for name, child in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for each in child if isinstance(child, list) else [child]:
                if isinstance(each, ast.AST):
                    yield from _evaluated(each)


def parameters(given: ast.arguments, scope: Scope | None = None) -> list[str]:
    """Return the names of parameters in the order of a call's arguments: positional ones before keyword-only ones."""
    if given.kwarg and scope:
        raise ScriptError(scope.module, given.kwarg, "**keywords of a function are not translated")
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *([given.vararg] if given.vararg else [])]
    return [argument.arg for argument in every]


def assigned(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the variables that statements bind, without those of nested functions and comprehensions."""
    found: set[str] = set()
    for node in (inner for statement in statements for inner in _in_scope(statement)):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def _in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement; of a comprehension only the targets of `:=`, which are the function's."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
        yield from (each.target for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
        return
    for child in ast.iter_child_nodes(node):
        yield from _in_scope(child)


def _mentions(node: ast.FunctionDef, name: str) -> bool:
    named = any(isinstance(each, ast.Name) and each.id in (name, "super") for each in ast.walk(node))
    return named or any(decorator(each) == "cached_property" for each in node.decorator_list)


def _has_functions(node: ast.FunctionDef) -> bool:
    """Tell whether there are nested functions that have a different `this` in JavaScript."""
    inner = (each for statement in node.body for each in ast.walk(statement))
    return any(isinstance(each, ast.GeneratorExp | ast.FunctionDef) for each in inner)


def _waiting(node: ast.FunctionDef, module: str) -> frozenset[str]:
    """Return the names of the functions within a function that wait."""
    inner = [each for statement in node.body for each in ast.walk(statement) if isinstance(each, ast.FunctionDef)]
    return frozenset(each.name for each in inner if node_waits(module, each))


def _star(node: ast.FunctionDef) -> str:
    """Return "*" for a generator, otherwise nothing."""
    inner = [each for statement in node.body for each in _in_scope(statement)]
    return "*" if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in inner) else ""


def decorator(node: ast.expr) -> str:
    """Return the name of a decorator, without its module and arguments."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).split(".")[-1]


def _unpacked(text: str, target: ast.expr, value: ast.expr) -> str:
    """Return the values that are assigned to the elements of a target, in the order of `_star_last()`."""
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    star = next((i for i, each in enumerate(elements) if isinstance(each, ast.Starred)), None)
    given = value.elts if isinstance(value, ast.Tuple) else []
    if star is None and len(given) == len(elements) and not any(isinstance(each, ast.Starred) for each in given):
        return text
    return f"$.unpacked({text}, {len(elements)}{'' if star is None else f', {len(elements) - star - 1}'})"


def _star_last(target: ast.expr) -> ast.expr:
    """Return a target with its starred element last, as JavaScript demands."""
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    ordered = sorted(elements, key=lambda each: isinstance(each, ast.Starred))
    return ast.copy_location(ast.Tuple(ordered), target) if elements else target


def _indented(lines: Sequence[str]) -> list[str]:
    return [INDENT + line for text in lines for line in text.split("\n")]
