"""Translation of a set of Python names, with everything that they need, to one JavaScript module."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import re
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webmm.page.script import runtime
from webmm.page.script.expressions import Scope
from webmm.page.script.functions import Functions, decorator, parameters
from webmm.page.script.meanings import expressible, refer
from webmm.page.script.names import HostError, Name, ScriptError, definitions, home, is_ours, is_provided, refuse_host
from webmm.page.script.values import field as field_text
from webmm.page.script.values import value as value_text

ERRORS = "webmm.errors"  # its classes are implemented in JavaScript
SIGNED = re.compile(r"^\$\.signed\(.*?(\w+)»?, \"[^\"]*\"\);\n?", re.MULTILINE)  # a declaration of parameters' names
GLOBALS = ("Array", "Map", "Math", "Number", "Object", "Set", "String")  # JavaScript's own, which translated code uses
MARK = re.compile("«(.*?)»")  # placeholder of a definition's identifier, until all definitions are known


@dataclass
class Definition:
    """The JavaScript definition of a Python name."""

    text: str
    before: set[Name] = field(default_factory=set)  # definitions that must precede this one
    needs: set[Name] = field(default_factory=set)  # definitions that may follow this one
    members: set[str] = field(default_factory=set)  # attributes of its instances


class Program:
    """Translates `names` and everything that they need; objects that JavaScript passes in have attributes `described`.

    The names of parameters are kept for `names`, and for functions and methods called with keywords at run time, in
    translated code or, if they are in `by_keyword`, by others. Methods in `omitted` (module.Class.method) are left out.
    Functions that use Python-only names, and those in PROVIDED, call what JavaScript provides. Raises ScriptError, with
    file and line, for code outside the supported subset.
    """

    def __init__(
        self,
        names: Iterable[Name],
        described: Iterable[str] = (),
        by_keyword: Iterable[str] = (),
        omitted: Iterable[str] = (),
    ) -> None:
        self.entries = list(names)
        self.described = set(described)
        self.omitted = set(omitted)
        self.found: dict[Name, Definition] = {}
        self.homes: dict[str, str] = {}  # the file of each definition, of the last texts()
        self._needs: set[Name] = set()
        self._attributes: dict[str, tuple[str, ast.AST]] = {}
        self._functions = Functions(self._use, signature, self._attribute)
        self._functions.by_keyword.update(by_keyword, (name.name for name in self.entries))
        self._walk()
        self._check_attributes()

    def _walk(self) -> None:
        waiting = list(reversed(self.entries))
        while waiting:
            name = waiting.pop()
            if name not in self.found:
                self.found[name] = made = self._define(name)
                waiting += sorted(made.needs | made.before, key=str, reverse=True)

    def _use(self, name: Name) -> str:
        if name.module == ERRORS:
            return f"$errors.{name.name}"
        self._needs.add(name)
        return f"«{name}»"

    def _attribute(self, name: str, module: str, node: ast.AST) -> None:
        self._attributes.setdefault(name, (module, node))

    def _check_attributes(self) -> None:
        known = (
            {member for made in self.found.values() for member in made.members} | self.described | runtime.ATTRIBUTES
        )
        for name, (module, node) in self._attributes.items():
            if name not in known:
                raise ScriptError(module, node, f"no translated class has an attribute {name}")

    # Definitions

    def _define(self, name: Name) -> Definition:
        if name.key:
            text, before = self._valued(name.value, str(name))
            mapping = Name(name.module, name.name)
            return Definition(f"«{mapping}».set({json.dumps(name.key)}, {text});", {*before, mapping})
        node = definitions(name.module).get(name.name)
        if isinstance(node, ast.ClassDef) and is_provided(name.module, name.name):
            return Definition(f"export const «{name}» = $.hostClass({json.dumps(str(name))});")
        if isinstance(node, ast.ClassDef):
            return self._class(name, node)
        if isinstance(node, ast.FunctionDef):
            return self._function(name, node)
        try:
            text, before = self._valued(name.value, str(name))
        except HostError as error:
            raise ScriptError(name.module, node, f"{name.name} has no counterpart in JavaScript: {error}") from error
        return Definition(f"export const «{name}» = {text};", before)

    def _valued(self, value: Any, where: str) -> tuple[str, set[Name]]:
        self._needs = set()
        text = value_text(value, self._use, where)
        return text, self._needs

    def _scope(self, name: Name, is_class: bool = False) -> Scope:
        return Scope(
            name.module, f"«{name}»" if is_class else "", set(), lambda id, node: expressible(refer(name.module, id))
        )

    def _function(self, name: Name, node: ast.FunctionDef) -> Definition:
        self._needs = set()
        kept = dict(self._attributes)
        try:
            text = self._functions.function(node, self._scope(name))
        except HostError as error:
            refuse_host(name, node, error)
            self._attributes = kept
            return Definition(f"export const «{name}» = $.host({json.dumps(str(name))});")
        needs = self._needs
        if text.startswith("$."):
            text = f"export const «{name}» = {text};"
        else:
            text = "export " + text.replace(f" {name.name}(", f" «{name}»(", 1)
        return Definition(f"{text}\n{_signed(f'«{name}»', signature(name) or ())}".rstrip(), set(), needs)

    def _class(self, name: Name, node: ast.ClassDef) -> Definition:
        cls = name.value
        bases = [home(base.__module__, base.__name__) for base in _bases(cls)]
        methods, needs, signs = [], set(), []
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and f"{name}.{member.name}" not in self.omitted:
                text, used = self._method(name, member)
                methods.append(text)
                needs |= used
                signs.append(_signed_method(name, member))
        if hasattr(cls, "_fields"):
            methods.append("*[Symbol.iterator]() { yield* Object.values(this); }")
        attributes, fields, before = self._declared(name, cls)
        properties = [
            f"attributes: {{ {', '.join(attributes)} }}" if attributes else "",
            f"fields: [{', '.join(fields)}]" if fields else "",
            "order: true" if _declares(cls, "order") else "",
            "identity: true" if not (_declares(cls, "eq") or hasattr(cls, "_fields")) else "",
        ]
        head = f"export class «{name}» extends $.PyObject {{"
        body = "\n".join(" " + line for method in methods for line in method.split("\n"))
        places = ", ".join(map(self._use, bases))
        more = ", ".join(filter(None, properties))
        end = f"$.define(«{name}», {json.dumps(name.name)}, [{places}]{f', {{ {more} }}' if more else ''});"
        text = "\n".join(filter(None, [head, body, "}", end, *signs]))
        return Definition(text, before | set(bases), needs, _members(cls))

    def _method(self, name: Name, node: ast.FunctionDef) -> tuple[str, set[Name]]:
        self._needs = set()
        kept = dict(self._attributes)
        try:
            return self._functions.method(node, self._scope(name, True)), self._needs
        except HostError as error:
            refuse_host(name, node, error)
            self._attributes = kept
            return _hosted(f"{name}.{node.name}", node), set()

    def _declared(self, name: Name, cls: type[Any]) -> tuple[list[str], list[str], set[Name]]:
        """Return the attributes and fields that a class itself declares, and the names that they need."""
        declared = inspect.get_annotations(cls)
        fields = [f for f in dataclasses.fields(cls) if f.name in declared] if dataclasses.is_dataclass(cls) else []
        hints = typing.get_type_hints(cls, include_extras=True) if fields else {}
        self._needs = set()
        written = [field_text(each, _hint(hints[each.name]), self._use, str(name)) for each in fields]
        defaults = getattr(cls, "_field_defaults", {})
        for key in getattr(cls, "_fields", ()):
            default = f", {value_text(defaults[key], self._use, str(name))}" if key in defaults else ""
            written.append(f"[{json.dumps(key)}{default}]")
        attributes = []
        for key, value in cls.__dict__.items():
            if not key.startswith("_") and key not in {f.name for f in fields} and _is_plain(value):
                attributes.append(f"{key}: {value_text(value, self._use, str(name))}")
        return attributes, written, self._needs

    # The text

    def texts(self, files: Mapping[str, Iterable[Name]]) -> dict[str, str]:
        """Return JavaScript modules by file, for a subfolder of the folder of `python.js`.

        Each has its `names` and what they need, except for what the files before it have, from which it imports.
        """
        homes, texts = dict[str, str](), dict[str, str]()
        for file, names in files.items():
            needed = self._needed(names)
            own = [name for name in self._in_order() if name in needed and str(name) not in homes]
            used = {mark for name in own for mark in MARK.findall(self.found[name].text)} & homes.keys()
            here = {self._identifiers[each] for each in used}
            if twice := next((name for name in own if self._identifiers.get(str(name)) in here), None):
                definition = definitions(twice.module).get(twice.name)
                raise ScriptError(twice.module, definition, f"{file} imports another {twice.name}: rename one of them")
            imports = "".join(
                f'import {{ {", ".join(sorted(self._identifiers[each] for each in there))} }} from "./{other}";\n'
                for other in files
                if (there := [each for each in used if homes[each] == other])
            )
            texts[file] = self._module(own, imports)
            homes |= dict.fromkeys(map(str, own), file)
        self.homes = homes
        return texts

    def _needed(self, names: Iterable[Name]) -> set[Name]:
        """Return `names` and everything that they need."""
        found, waiting = set(), list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.found[name].needs | self.found[name].before
        return found

    def _module(self, definitions: Iterable[Name], imports: str) -> str:
        identifiers = self._identifiers
        names = {"* as $": "python", "* as $errors": "errors"}
        header = "".join(f'import {name} from "../{module}.js";\n' for name, module in names.items()) + imports
        body = "\n".join(self.found[name].text for name in definitions)
        by_keyword = self._functions.by_keyword
        body = SIGNED.sub(lambda match: match.group(0) if match.group(1) in by_keyword else "", body)
        return runtime.imported(header + MARK.sub(lambda match: identifiers[match.group(1)], body)) + "\n"

    def identifier(self, name: Name) -> str:
        """Return the exported identifier of a definition; raises KeyError if the module does not have it."""
        return self._identifiers[str(name)]

    def _in_order(self) -> list[Name]:
        order: dict[Name, None] = {}
        entered: set[Name] = set()

        def visit(name: Name) -> None:
            if name in entered:
                return
            entered.add(name)
            for other in sorted(self.found[name].before, key=str):
                visit(other)
            order[name] = None

        for name in self.found:
            visit(name)
        return list(order)

    @functools.cached_property
    def _identifiers(self) -> dict[str, str]:
        """Return an identifier for each definition: its name, with the module if it is not the only one of it."""
        named = [name for name in self.found if not name.key]
        shared = Counter(name.name for name in named)
        return {
            str(name): name.name
            if (shared[name.name] == 1 and name.name not in GLOBALS) or name in self.entries
            else f"{name.name}${re.sub(r'[^0-9A-Za-z]', '_', name.module.removeprefix('webmm.').rpartition('/')[2])}"
            for name in named
        }


def signature(name: Name) -> Sequence[str] | None:
    """Return the parameters of a function or class in JavaScript's order; None if they are unknown."""
    if name.module == ERRORS:
        return ("message",)
    value, node = name.value, definitions(name.module).get(name.name)
    if isinstance(value, type):
        if hasattr(value, "_fields"):
            return tuple(value._fields)
        if dataclasses.is_dataclass(value):
            return [f.name for f in sorted(dataclasses.fields(value), key=lambda f: bool(f.kw_only)) if f.init]
        return ()
    return parameters(node.args) if isinstance(node, ast.FunctionDef) else None


def _bases(cls: type[Any]) -> list[type[Any]]:
    """Return the classes of ours in the method resolution order, up to the first whose own order is the rest of it."""
    order = [base for base in cls.__mro__[1:] if is_ours(base.__module__)]
    whole = (i for i, base in enumerate(order) if order[i:] == [each for each in base.__mro__ if each in order])
    return order[: next(whole, 0) + 1]


def _signed(target: str, names: Sequence[str]) -> str:
    """Return the statement that declares the names of parameters, for calls with keyword arguments."""
    if not names:
        return ""
    return f"$.signed({target}, {json.dumps(' '.join(names))});"


def _signed_method(name: Name, node: ast.FunctionDef) -> str:
    decorators = {decorator(each) for each in node.decorator_list}
    if decorators & {"property", "cached_property"}:
        return ""
    owner = f"«{name}»" if "classmethod" in decorators else f"«{name}».prototype"
    return _signed(f"{owner}.{node.name}", parameters(node.args)[1:])


def _hosted(where: str, node: ast.FunctionDef) -> str:
    """Return a method that raises, in place of a Python-only one."""
    kinds = {"property": "get ", "cached_property": "get ", "classmethod": "static "}
    kind = next((kinds[name] for name in map(decorator, node.decorator_list) if name in kinds), "")
    given = "" if kind == "get " else "...args"
    host = f"$.host({json.dumps(where)})(this{given and ', ' + given})"
    return f"{kind}{node.name}({given}) {{ return {host}; }}"


def _hint(annotation: Any) -> str | None:
    """Return the arguments of a field's `Annotated`, as from `typing.get_args()`."""
    if not hasattr(annotation, "__metadata__"):
        return None
    of, *metadata = typing.get_args(annotation)
    return json.dumps([str(getattr(of, "__name__", of)), *metadata])


def _is_plain(value: Any) -> bool:
    """Tell whether an attribute of a class is neither a method nor a descriptor."""
    described = inspect.isroutine(value) or hasattr(value, "__get__") or isinstance(value, classmethod | staticmethod)
    return isinstance(value, type) or not described


def _declares(cls: type[Any], parameter: str) -> bool:
    params = getattr(cls, "__dataclass_params__", None)
    return bool(params and getattr(params, parameter))


def _members(cls: type[Any]) -> set[str]:
    fields = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    return {name for name in dir(cls) if not name.startswith("__")} | fields | set(getattr(cls, "__annotations__", ()))
