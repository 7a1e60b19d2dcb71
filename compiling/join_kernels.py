"""Join the kernels of the package into one Cython file: the C compiler then sees all of them and can inline them.

A kernel is an ordinary Python function with types, marked by a decorator of `calibeat.core.subset`. It may use numbers,
arrays, `math`, loops, and other kernels. So the translation is short:

- names are resolved through the imports of their modules; a constant becomes its value, and those in `CONSTANTS` also
  get names in C, for the files written by hand;
- an array becomes a pointer with its length: `a[i]`, `a[i, j]`, `a[i:j]`, `len(a)` and `a.shape` mean what they say;
- `scratch(7)` becomes an array on the stack, `blank(7)` one without zeros, a NamedTuple a struct, a tuple a C tuple;
- each local variable gets a C type from what is assigned to it.

Nothing is imported, and nothing is run but the arithmetic of constants. Anything else in a kernel is an error of the
build, which names the line.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
import runpy
from collections.abc import Callable, Sequence
from copy import deepcopy
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

PACKAGE = "calibeat"
MARKS = {"kernel": "inline ", "large_kernel": "", "entry": "inline ", "loop": ""}
ENTRIES = {"entry", "loop"}  # what Python calls
SCALARS = {"float": "double", "int": "Index", "bool": "bint"}
# NumPy's name of an element -> the struct of an array of them, the type in C, its letters in a buffer, bytes.
ARRAYS = {
    "float64": ("F64", "double", b"d", 8),
    "int64": ("I64", "int64_t", b"lq", 8),
    "int32": ("I32", "int32_t", b"il", 4),
    "uint32": ("U32", "uint32_t", b"IL", 4),
    "uint8": ("U8", "uint8_t", b"B", 1),
}
TABLE = "F64N"  # an array of floats with two to four dimensions
ARRAY_KINDS = {struct for struct, *_ in ARRAYS.values()} | {TABLE}
# What the files written by hand (`src/calibeat/_*.pxi`) call whole numbers that a module defines.
CONSTANTS = {
    "RECEIPT_FORMAT": ("core.receipt", "FORMAT"),
    "HEDGED": ("core.receipt", "HEDGED"),
    "BANDED": ("core.receipt", "BANDED"),
    "MOST_RECEIPT": ("core.groups", "MOST_GROUPED_RECEIPT"),
    "GROUPED_NUMBERS": ("core.groups", "GROUPED_RECEIPT_WIDTH"),
    "GROUPED_EXPERT": ("core.groups", "GROUPED"),
    "EVICTED": ("core.groups", "EVICTED"),
    "MOST_ATTRIBUTES": ("core.groups", "MOST_ATTRIBUTES"),
    "RECEIPT_SCORE": ("core.receipt", "SCORE"),
    "RECEIPT_NUMBERS": ("core.receipt", "RECEIPT_WIDTH"),
    "MOST_SEVERAL": ("core.several", "MOST_NUMBERS"),
    "SEVERAL_OWN": ("core.several", "OWN"),
    "SEVERAL_MIXED": ("core.several", "MIXED"),
    "SEVERAL_ROOM": ("core.several", "ROOM"),
    "N": ("core.layout", "N"),
    "EVENTS": ("core.stats", "EVENTS"),
    "LAST": ("core.stats", "LAST"),
}
OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}

Kind = Any  # "double", "Index", "bint", "void", one of ARRAY_KINDS, the name of a struct, or a tuple of these
Definition = tuple[str, Any]  # "kernel", "struct", "value", "import" or "other", and what belongs to it


class NotAllowedError(Exception):
    """A kernel does what kernels may not do."""


class Module:
    """A file of the package: what its names mean."""

    def __init__(self, source: Path, name: str) -> None:
        self.name = name
        self.path = source.joinpath(*name.split(".")).with_suffix(".py")
        self.names: dict[str, Definition] = {}
        for node in ast.parse(self.path.read_text(encoding="utf-8")).body:
            self._define(node)

    def _define(self, node: ast.stmt) -> None:
        match node:
            case ast.ImportFrom(module=target, names=aliases, level=level):
                package = self.name.split(".")[:-level] if level else []
                origin = ".".join([*package, *([target] if target else [])])
                for alias in aliases:
                    self.names[alias.asname or alias.name] = ("import", (origin, alias.name))
            case ast.FunctionDef(name=own, decorator_list=marks):
                found = [mark.id for mark in marks if isinstance(mark, ast.Name) and mark.id in MARKS]
                self.names[own] = ("kernel", (node, found[0])) if found else ("other", None)
            case ast.ClassDef(name=own, bases=[ast.Name(id="NamedTuple")]):
                self.names[own] = ("struct", node)
            case ast.Assign(targets=[ast.Tuple(elts=parts)], value=value):
                for i, part in enumerate(parts):
                    if isinstance(part, ast.Name):
                        self.names[part.id] = ("value", ast.Subscript(value, ast.Constant(i), ast.Load()))
            case ast.Assign(targets=[ast.Name(id=own)], value=value):
                self.names[own] = ("value", value)

    def c_name(self, name: str) -> str:
        return "_".join([*self.name.split(".")[1:], name.strip("_")])


class Joiner:
    """All kernels of the package in one text; each stands behind those that it calls."""

    def __init__(self, source: Path, constants: dict[str, tuple[str, str]]) -> None:
        self.source, self._constants = source, constants
        self.structs: dict[str, dict[str, Kind]] = {}
        self._homes: dict[str, str] = {}  # the modules that they are in
        self._modules: dict[str, Module] = {}
        self._returns: dict[str, Kind] = {}  # of the kernels that are translated
        self._parts: dict[str, str] = {}
        self._entries: list[tuple[str, str]] = []  # the module of each, and its text

    def text(self, has: Callable[[str], bool], written: Sequence[Path] = ()) -> str:
        """The Cython source of a unit: the entries of the modules that it has, and what its files written by hand call.

        `MADE_FROM` in it is a hash of all that the compiler sees.
        """
        by_hand = "".join(path.read_text(encoding="utf-8") for path in written)
        called = set(re.findall(r"\bk_(\w+)", by_hand))
        for path in sorted(self.source.joinpath(PACKAGE).rglob("*.py")):
            content = path.read_text(encoding="utf-8")
            if any(f"\n@{mark}\n" in content for mark in MARKS):
                module = self.module(".".join(path.relative_to(self.source).with_suffix("").parts))
                for own, (sort, what) in module.names.items():
                    if sort == "kernel" and (module.c_name(own) in called or (what[1] in ENTRIES and has(module.name))):
                        self.kernel(module, own, *what)
        entries = [entry for home, entry in self._entries if has(home)]
        head = [self.constants()] if self._constants else []
        head += [*map(array_struct, ARRAYS.values())]
        joined = "\n\n\n".join([*head, *self._parts.values(), *entries]) + "\n"
        made_from = hashlib.sha256((joined + by_hand).encode()).hexdigest()
        return f"MADE_FROM = {made_from!r}\n\n\n{joined}"

    def files(self) -> list[Path]:
        """The files whose kernels, structs or constants are in the text, once it is made."""
        return sorted(module.path for module in self._modules.values())

    # ---- names -----------------------------------------------------------------------------------------------------

    def module(self, name: str) -> Module:
        if name not in self._modules:
            self._modules[name] = Module(self.source, name)
        return self._modules[name]

    def find(self, module: Module, name: str) -> tuple[Module, str, str, Any]:
        """Where a name that a module uses is defined, under which name, as what sort of thing, and the definition."""
        sort, what = module.names.get(name, ("unknown", None))
        if sort == "import" and what[0].startswith(f"{PACKAGE}."):
            return self.find(self.module(what[0]), what[1])
        return module, name, sort, what

    def constants(self) -> str:
        """The constants that have a name in C, as `CONSTANTS` lists them."""
        lines = []
        for name, (file, own) in self._constants.items():
            home, _, sort, value = self.find(self.module(f"{PACKAGE}.{file}"), own)
            number = self.constant(home, value) if sort == "value" else None
            if type(number) is not int:
                raise NotAllowedError(f"{home.path}: {own} must be a whole number to be {name} in C, got {number!r}")
            lines.append(f"    {name} = {number}")
        return "\n".join(["cdef enum:", *lines])

    def constant(self, module: Module, node: ast.expr) -> Any:
        """The value of an expression of constants."""
        known: dict[str, Any] = {
            "math": math,
            "Decimal": Decimal,
            "Context": Context,
            "float": float,
            "len": len,
            "range": range,
            "tuple": tuple,
        }
        for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - known.keys():
            home, _, sort, value = self.find(module, name)
            if sort == "value":
                known[name] = self.constant(home, value)
        whole = ast.fix_missing_locations(ast.Expression(node))
        return eval(compile(whole, str(module.path), "eval"), {"__builtins__": {}, **known})  # noqa: S307 - our own files

    # ---- types -----------------------------------------------------------------------------------------------------

    def kind(self, module: Module, node: ast.expr | None) -> Kind:
        """The C type of an annotation."""
        match node:
            case ast.Constant(value=None):
                return "void"
            case ast.Name(id=name) if name in SCALARS:
                return SCALARS[name]
            case ast.Name(id=name):
                home, own, sort, what = self.find(module, name)
                if sort == "struct":
                    return self.struct(home, own, what)
                if sort == "value":
                    return TABLE if own == "Table" else self.kind(home, what)
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
                return tuple(self.kind(module, part) for part in parts)
            case ast.Subscript(slice=ast.Attribute(attr=element)) if element in ARRAYS:
                return ARRAYS[element][0]
        raise NotAllowedError(f"{module.path}: {ast.unparse(node) if node else 'no annotation'} has no C type")

    def struct(self, module: Module, name: str, node: ast.ClassDef) -> str:
        if self._homes.setdefault(name, module.name) != module.name:
            raise NotAllowedError(f"{module.path}: {name} is already the name of a struct in {self._homes[name]}")
        if name not in self.structs:
            fields = [(f.target, f.annotation) for f in node.body if isinstance(f, ast.AnnAssign)]
            kinds = {own.id: self.kind(module, kind) for own, kind in fields if isinstance(own, ast.Name)}
            lines = [f"    {declared(kind)} {own}" for own, kind in kinds.items()]
            self._parts[f"struct {name}"] = "\n".join(
                [f"cdef struct {name}:", *lines, "", *struct_from_python(name, kinds)]
            )
            self.structs[name] = kinds
        return name

    def table(self, module: Module, name: str) -> str:
        """A constant tuple of floats, as an array of C."""
        home, own, _, value = self.find(module, name)
        numbers = ", ".join(repr(float(number)) for number in self.constant(home, value))
        own = home.c_name(own)
        c = f"static const double {own}[] = {{{numbers}}};"
        self._parts[own] = f'cdef extern from *:\n    """\n    {c}\n    """\n    const double* {own}'
        return own

    # ---- kernels ---------------------------------------------------------------------------------------------------

    def kernel(self, module: Module, name: str, node: ast.FunctionDef, mark: str) -> Kind:
        """Translate a kernel, unless it is done; what it returns."""
        own = module.c_name(name)
        if own not in self._returns:
            result = self.kind(module, node.returns)
            body = Body(self, module, node)
            head = ", ".join(f"{declared(kind)} {argument}" for argument, kind in body.arguments.items())
            text = body.translated()
            kind = f"twice_{result}" if mark == "loop" else declared(result)
            signature = f"cdef {MARKS[mark]}{kind} k_{own}({head}) noexcept nogil:"
            self._parts[own] = f"# {module.name}\n{signature}\n{text}"
            self._returns[own] = result
            if mark in ENTRIES:
                self._entries.append((module.name, wrapper(own, body.arguments, result, self.structs)))
        return self._returns[own]


class Body:
    """One kernel: the types of its variables, and its statements."""

    def __init__(self, joiner: Joiner, module: Module, node: ast.FunctionDef) -> None:
        self._joiner, self._module, self._node = joiner, module, node
        self.arguments: dict[str, Kind] = {a.arg: joiner.kind(module, a.annotation) for a in node.args.args}
        self._variables: dict[str, Kind] = {}
        self._stack: dict[str, int] = {}  # arrays on the stack, and their lengths
        self._spares = 0
        self._lines: list[str] = []

    def translated(self) -> str:
        statements = self._node.body
        if isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
            statements = statements[1:]
        before: dict[str, Kind] | None = None
        while before != self._variables:  # a variable may turn out to be a float, and then what is made of it
            before, self._lines, self._spares = dict(self._variables), [], 0
            self._block(statements, 1)
        declarations = [f"    cdef {declared(kind)} {name}" for name, kind in self._variables.items()]
        declarations += [f"    cdef double[{size}] {name}" for name, size in self._stack.items()]
        return "\n".join([*declarations, *self._lines])

    def _error(self, node: ast.AST, why: str) -> NotAllowedError:
        line = getattr(node, "lineno", self._node.lineno)
        return NotAllowedError(f"{self._module.path}:{line}: in {self._node.name}, {why}: {ast.unparse(node)}")

    def _put(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _note(self, name: str, kind: Kind) -> None:
        """A variable holds values of this kind."""
        if name not in self.arguments:
            self._variables[name] = joined(self._variables.get(name, kind), kind)
        elif joined(self.arguments[name], kind) != self.arguments[name]:
            raise self._error(self._node, f"{name} must stay {self.arguments[name]}, got {kind}")

    def _spare(self, kind: Kind) -> str:
        self._spares += 1
        self._note(f"_{self._spares}", kind)
        return f"_{self._spares}"

    # ---- statements ------------------------------------------------------------------------------------------------

    def _block(self, statements: list[ast.stmt], depth: int) -> None:
        for statement in statements:
            try:
                self._statement(statement, depth)
            except (AttributeError, LookupError, NameError, TypeError, ValueError) as error:
                raise self._error(statement, f"there is what kernels cannot have ({error})") from error

    def _statement(self, node: ast.stmt, depth: int) -> None:  # noqa: C901 - one case for each statement
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                self._unpack(targets, value, depth)
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="blank" | "scratch" | "small_scratch" as sort), args=[size]),
            ):
                self._stack[name] = self._joiner.constant(self._module, size)
                if sort != "blank":
                    self._put(depth, f"for _0 in range({self._stack[name]}):")
                    self._note("_0", "Index")
                    self._put(depth + 1, f"{name}[_0] = 0.0")
            case ast.Assign(targets=targets, value=value):
                text, kind = self._value(value)
                self._put(depth, " = ".join([*(self._place(target, kind) for target in targets), text]))
            case ast.AugAssign(target=target, op=op, value=value):
                whole = ast.copy_location(ast.BinOp(read_from(target), op, value), node)
                if isinstance(op, ast.Add | ast.Sub | ast.Mult):
                    kind = self._value(whole)[1]
                    self._put(depth, f"{self._place(target, kind)} {OPERATORS[type(op)]}= {self._value(value)[0]}")
                else:
                    self._statement(ast.copy_location(ast.Assign([target], whole), node), depth)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="unrolled"), args=args), body=body):
                for i in range(*(self._joiner.constant(self._module, argument) for argument in args)):
                    self._block([Written(name, i).visit(deepcopy(statement)) for statement in body], depth)
            case ast.For(
                target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=args), body=body, orelse=[]
            ):
                self._note(name, "Index")
                self._put(depth, f"for {name} in range({', '.join(self._value(argument)[0] for argument in args)}):")
                self._block(body, depth + 1)
            case ast.While(test=test, body=body, orelse=[]):
                self._put(depth, f"while {self._value(test)[0]}:")
                self._block(body, depth + 1)
            case ast.If(test=test, body=body, orelse=orelse):
                self._put(depth, f"if {self._value(test)[0]}:")
                self._block(body, depth + 1)
                if orelse:
                    self._put(depth, "else:")
                    self._block(orelse, depth + 1)
            case ast.Return(value=ast.IfExp(test=test, body=ast.Tuple() as yes, orelse=no)):
                self._statement(ast.copy_location(ast.If(test, [ast.Return(yes)], [ast.Return(no)]), node), depth)
            case ast.Return(value=value):
                self._put(depth, f"return {self._value(value)[0]}" if value else "return")
            case ast.Expr(value=ast.Call() as value):
                self._put(depth, self._value(value)[0])
            case ast.Break() | ast.Continue():
                self._put(depth, ast.unparse(node))
            case _:
                raise self._error(node, "there is a statement that kernels cannot have")

    def _unpack(self, targets: list[ast.expr], value: ast.expr, depth: int) -> None:
        """a, b = ...; all values are read before the first target is written."""
        if isinstance(value, ast.IfExp) and isinstance(value.body, ast.Tuple):
            whole = [ast.Tuple(targets, ast.Store())]
            choice = ast.If(value.test, [ast.Assign(whole, value.body)], [ast.Assign(whole, value.orelse)])
            self._statement(ast.copy_location(choice, value), depth)
            return
        if isinstance(value, ast.Tuple):
            values = [self._value(part) for part in value.elts]
        else:
            text, kinds = self._value(value)
            whole_name = self._spare(kinds)
            self._put(depth, f"{whole_name} = {text}")
            values = [(f"{whole_name}[{i}]", kind) for i, kind in enumerate(kinds)]
        if isinstance(value, ast.Tuple) and not are_independent(targets, value.elts):
            spares = [(self._spare(kind), text, kind) for text, kind in values]
            for spare, text, _ in spares:
                self._put(depth, f"{spare} = {text}")
            values = [(spare, kind) for spare, _, kind in spares]
        for target, (text, kind) in zip(targets, values, strict=True):
            if not (isinstance(target, ast.Name) and target.id == "_"):
                self._put(depth, f"{self._place(target, kind)} = {text}")

    def _place(self, target: ast.expr, kind: Kind) -> str:
        """Where a value of this kind goes."""
        if isinstance(target, ast.Name):
            self._note(target.id, kind)
            return target.id
        if isinstance(target, ast.Subscript):
            return self._value(read_from(target))[0]
        raise self._error(target, "nothing can be put there")

    # ---- values ----------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> tuple[str, Kind]:  # noqa: C901 - one case for each expression
        match node:
            case ast.Constant(value=value):
                return literal(value)
            case ast.Name(id=name) if name in self._stack:
                return f"F64(&{name}[0], {self._stack[name]})", "F64"
            case ast.Name(id=name) if name in self.arguments or name in self._variables:
                return name, self.arguments[name] if name in self.arguments else self._variables[name]
            case ast.Name() | ast.Attribute(value=ast.Name(id="math")):
                return literal(self._joiner.constant(self._module, node))
            case ast.Attribute(value=value, attr=name):
                text, kind = self._value(value)
                if name == "shape":
                    return f"({text}.n, {text}.d1)", ("Index", "Index")
                return f"{text}.{name}", self._joiner.structs[kind][name]
            case ast.Subscript():
                return self._element(node)
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(node, left, op, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(not {self._value(operand)[0]})", "bint"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                text, kind = self._value(operand)
                return f"(-{text})", kind
            case ast.BoolOp(op=op, values=values):
                word = " and " if isinstance(op, ast.And) else " or "
                return "(" + word.join(self._value(value)[0] for value in values) + ")", "bint"
            case ast.Compare(left=left, ops=ops, comparators=others):
                texts = [self._value(left)[0]]
                for compared, other in zip(ops, others, strict=True):
                    texts += [COMPARISONS[type(compared)], self._value(other)[0]]
                return f"({' '.join(texts)})", "bint"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                (yes, first), (no, second) = self._value(body), self._value(orelse)
                kind = joined(first, second)
                return f"({cast(yes, first, kind)} if {self._value(test)[0]} else {cast(no, second, kind)})", kind
            case ast.Tuple(elts=parts):
                texts_of_parts, kinds = zip(*(self._value(part) for part in parts), strict=True)
                return f"({', '.join(texts_of_parts)})", kinds
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr=name), args=args):
                return self._math(node, name, args)
            case ast.Call(func=ast.Attribute(value=value, attr="_replace"), keywords=changes):
                return self._replaced(value, changes)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._call(node, name, args)
        raise self._error(node, "there is an expression that kernels cannot have")

    def _element(self, node: ast.Subscript) -> tuple[str, Kind]:
        if isinstance(node.value, ast.Name) and node.value.id in self._stack and not isinstance(node.slice, ast.Slice):
            return f"{node.value.id}[{self._value(node.slice)[0]}]", "double"
        if isinstance(node.value, ast.Name) and node.value.id not in self.arguments | self._variables | self._stack:
            table = self._joiner.table(self._module, node.value.id)
            return f"{table}[{self._value(node.slice)[0]}]", "double"
        text, kind = self._value(node.value)
        if isinstance(kind, tuple):
            at = self._joiner.constant(self._module, node.slice)
            return (text[1:-1].split(", ") if text.startswith("(") else [f"{text}[{i}]" for i in range(len(kind))])[
                at
            ], kind[at]
        if isinstance(node.slice, ast.Slice):
            if node.slice.step or any(isinstance(end, ast.UnaryOp) for end in (node.slice.lower, node.slice.upper)):
                raise self._error(node, "there is a slice with a step, or from the end")
            begin = self._value(node.slice.lower)[0] if node.slice.lower else "0"
            end = self._value(node.slice.upper)[0] if node.slice.upper else f"{text}.n"
            return f"{kind}_part({text}, {begin}, {end})", kind
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        at, *others = (self._value(place)[0] for place in places)
        if (
            "-" in at
            and not {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}
            & (self.arguments | self._variables).keys()
        ):
            from_end = self._joiner.constant(self._module, node.slice)
            at = f"{text}.n - {-from_end}" if from_end < 0 else at
        for i, other in enumerate(others, 1):
            at = f"({at}) * {text}.d{i} + {other}"
        return f"{text}.data[{at}]", "double" if kind.startswith("F64") else "Index"

    def _arithmetic(self, node: ast.expr, left: ast.expr, op: ast.operator, right: ast.expr) -> tuple[str, Kind]:
        (a, first), (b, second) = self._value(left), self._value(right)
        is_float = "double" in (first, second)
        if isinstance(op, ast.Div):
            return f"({cast(a, first, 'double')} / {cast(b, second, 'double')})", "double"
        if type(op) not in OPERATORS or (isinstance(op, ast.Mod) and is_float):
            raise self._error(node, "there is an operator that kernels cannot have")
        return f"({a} {OPERATORS[type(op)]} {b})", "double" if is_float else "Index"

    def _math(self, node: ast.expr, name: str, args: list[ast.expr]) -> tuple[str, Kind]:
        texts = [self._value(argument)[0] for argument in args]
        if name == "sqrt":  # `core.algebra` has exp and ln
            return f"sqrt({texts[0]})", "double"
        if name == "isnan":
            return f"({texts[0]} != {texts[0]})", "bint"
        raise self._error(node, f"there is math.{name}, which kernels do not have yet")

    def _replaced(self, value: ast.expr, changes: list[ast.keyword]) -> tuple[str, Kind]:
        """A copy of a struct with other fields. Constants there are built into the loop that gets it."""
        text, kind = self._value(value)
        fields = {change.arg: self._value(change.value)[0] for change in changes}
        if unknown := fields.keys() - self._joiner.structs[kind].keys():
            raise TypeError(f"{kind} has no {unknown}")
        return f"{kind}({', '.join(fields.get(name, f'{text}.{name}') for name in self._joiner.structs[kind])})", kind

    def _call(  # noqa: C901 - one case for each function
        self, node: ast.Call, name: str, args: list[ast.expr]
    ) -> tuple[str, Kind]:
        values = [self._value(argument) for argument in args]
        texts = [text for text, _ in values]
        match name:
            case "len":
                return f"{texts[0]}.n", "Index"
            case "int" | "float":
                return f"(<{SCALARS[name]}>{texts[0]})", SCALARS[name]
            case "small_int":
                return f"(<Index><int>{texts[0]})", "Index"
            case "abs":
                return f"fabs({texts[0]})", "double"
            case "min" | "max":
                text, kind = values[0]
                for other, second in values[1:]:
                    both = joined(kind, second)
                    text, kind = f"{name}_{both}({cast(text, kind, both)}, {cast(other, second, both)})", both
                return text, kind
            case "mix_word" | "cross_words":
                return f"{name}({', '.join(texts)})", "Index"
            case "bits_of":
                return f"bits_of({texts[0]})", "Index"
            case "float_of":
                return f"float_of({texts[0]})", "double"
            case "prefetch":
                return f"prefetch({texts[0]}.data + {texts[1]})", "void"
        home, own, sort, what = self._joiner.find(self._module, name)
        if sort == "struct":
            return f"{self._joiner.struct(home, own, what)}({', '.join(texts)})", own
        if sort != "kernel":
            raise self._error(node, f"{name} is called, which is no kernel")
        wanted = [self._joiner.kind(home, argument.annotation) for argument in what[0].args.args]
        given = [kind for _, kind in values]
        if len(wanted) != len(given) or any(joined(to, kind) != to for to, kind in zip(wanted, given, strict=True)):
            sentence = f"{name} wants {', '.join(map(declared, wanted))}, got {', '.join(map(declared, given))}"
            raise self._error(node, sentence)
        kind = self._joiner.kernel(home, own, *what)
        return f"k_{home.c_name(own)}({', '.join(texts)})", kind


class Written(ast.NodeTransformer):
    """Writes a number wherever a variable is read."""

    def __init__(self, name: str, number: int) -> None:
        self._name, self._number = name, number

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(self._number), node) if node.id == self._name else node


def read_from(target: ast.expr) -> ast.expr:
    """The expression that reads what stands at a target."""
    return ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)


def are_independent(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    """Whether no value, and no index of a target, reads what an earlier target has written.

    Two arrays of different names may be the same memory.
    """
    written: set[str] = set()
    for target, value in zip(targets, values, strict=True):
        index = target.slice if isinstance(target, ast.Subscript) else ast.Constant(0)
        read = [n for part in (value, index) for n in ast.walk(part)]
        names = {n.id for n in read if isinstance(n, ast.Name)}
        if written & names or ("[]" in written and any(isinstance(n, ast.Subscript | ast.Call) for n in read)):
            return False
        written |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
        written |= {"[]"} if isinstance(target, ast.Subscript) else set()
    return True


def joined(a: Kind, b: Kind) -> Kind:
    """The type that holds both."""
    order = ["bint", "Index", "double"]
    if a == b:
        return a
    if a in order and b in order:
        return order[max(order.index(a), order.index(b))]
    raise TypeError(f"{a} and {b} have no type in common")


def cast(text: str, kind: Kind, wanted: Kind) -> str:
    return text if kind == wanted else f"(<{wanted}>{text})"


def literal(value: Any) -> tuple[str, Kind]:
    """A number as Cython writes it."""
    if isinstance(value, bool):
        return str(value), "bint"
    if isinstance(value, int):
        return (str(value) if abs(value) < 2**31 else f"{value}LL"), "Index"
    if not isinstance(value, float):
        raise TypeError(f"{value!r} is no number")
    if math.isinf(value):
        return ("INFINITY" if value > 0 else "(-INFINITY)"), "double"
    return ("NAN" if math.isnan(value) else repr(value)), "double"


def declared(kind: Kind) -> str:
    """A type as Cython writes it."""
    return f"({', '.join(map(declared, kind))})" if isinstance(kind, tuple) else str(kind)


def array_struct(array: tuple[str, str, bytes, int]) -> str:
    """An array as kernels have it, and how it is made from an object with a buffer."""
    name, item, letters, size = array
    return f"""cdef struct {name}:
    {item}* data
    Index n

cdef inline {name} {name}_part({name} whole, Index begin, Index end) noexcept nogil:
    return {name}(whole.data + begin, end - begin)

cdef {name} {name}_of(object array, str name) except *:
    cdef Index[4] shape
    cdef {item}* data = <{item}*>look_at(array, name, 1, {letters!r}, {size}, shape)
    return {name}(data, shape[0])"""


def struct_from_python(name: str, kinds: dict[str, Kind]) -> list[str]:
    """How a struct is made of the NamedTuple that Python gives."""
    values = [
        f"{kind}_of(given.{own}, {own!r})" if kind in ARRAY_KINDS else f"given.{own}" for own, kind in kinds.items()
    ]
    return [f"cdef {name} {name}_of(object given) except *:", f"    return {name}({', '.join(values)})"]


def wrapper(own: str, arguments: dict[str, Kind], result: Kind, structs: dict[str, dict[str, Kind]]) -> str:
    """What Python calls: it looks at the arrays, gives the interpreter's lock back, and runs the kernel."""
    head, lines, values = [], [], []
    for name, kind in arguments.items():
        if kind in structs:
            lines.append(f"    cdef {kind} _{name} = {kind}_of({name})")
        elif kind in ARRAY_KINDS:
            lines.append(f"    cdef {kind} _{name} = {kind}_of({name}, {name!r})")
        is_object = kind in structs or kind in ARRAY_KINDS
        head.append(name if is_object else f"{declared(kind)} {name}")
        values.append(f"_{name}" if is_object else name)
    call = f"k_{own}({', '.join(values)})"
    if result == "void":
        return "\n".join([f"def {own}({', '.join(head)}):", *lines, "    with nogil:", f"        {call}"])
    lines += [f"    cdef {declared(result)} _result", "    with nogil:", f"        _result = {call}"]
    lines.append("    return bool(_result)" if result == "bint" else "    return _result")
    return "\n".join([f"def {own}({', '.join(head)}):", *lines])


class Unit:
    """One extension module: the files that it is made from, and the text of its kernels."""

    def __init__(self, source: Path, name: str) -> None:
        self.name, self._source = name, source
        self.file = source / PACKAGE / f"{name}.pyx"
        includes = re.findall(r'^include "(.+)"$', self.file.read_text(encoding="utf-8"), re.MULTILINE)
        files = [self.file.with_name(include) for include in includes]
        self.written = [self.file, *(file for file in files if file.name.startswith("_"))]
        (self.kernels,) = (file for file in files if file not in self.written)
        self.joiner = Joiner(source, CONSTANTS)

    def text(self) -> str:
        """What its file of kernels holds."""
        unit_of = runpy.run_path(str(self._source / PACKAGE / "core" / "units.py"))["unit_of"]
        return self.joiner.text(lambda module: unit_of(module) == self.name, self.written)


def units(source: Path) -> list[Unit]:
    """The units that `core/units.py` lists."""
    return [Unit(source, name) for name in runpy.run_path(str(source / PACKAGE / "core" / "units.py"))["UNITS"]]
