"""Writes the pages of docs/reference that docstrings and fields say already.

`python docs/render.py` writes them, the table of folders in the page on architecture,
and what `fields.py` makes; with --check it only names those that differ, and ends with
1.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fields import FILES, rendered

import embedder
from embedder.cli.arguments import VERBS
from embedder.cli.options import Option, options
from embedder.config.settings import texts

ROOT = Path(__file__).parents[1]
PAGES = {
    name: ROOT / "docs" / f"{name}.md"
    for name in (
        "reference/python-api",
        "reference/commands",
        "explanation/architecture",
    )
}
FURTHER = {
    "Names": "embedder.data.names",
    "Status": "embedder.engine.epochs",
    "make_config": "embedder.config",
    "with_options": "embedder.config",
}
"""Names that are not in `embedder` itself, but in what its names take or return."""
_MARKED = re.compile(r"(?<=<!-- rendered -->\n).*?(?=^<!-- end -->$)", re.S | re.M)
_WIDTH = 88
_HEADS = {"Args", "Attributes", "Raises", "Returns", "Yields"}


def api() -> str:
    """All public names with their signatures and docstrings."""
    objects = {name: getattr(embedder, name) for name in embedder.__all__}
    for name, module in FURTHER.items():
        objects[name] = getattr(importlib.import_module(module), name)
    parts: list[str] = []
    for name in sorted(objects, key=str.lower):
        item = objects[name]
        where = FURTHER.get(name, "embedder")
        parts += [f"## {name}", f"`from {where} import {name}`", *_documented(item)]
        if inspect.isclass(item):
            for method, found in _methods(item):
                parts += [f"### {name}.{method}", *_documented(found)]
    return "\n\n".join(parts) + "\n"


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class of ours defines, with a docstring."""
    for name, found in vars(cls).items():
        function = getattr(found, "__func__", getattr(found, "fget", found))
        function = getattr(found, "func", function)  # of cached properties
        is_ours = getattr(function, "__module__", "").startswith("embedder.")
        if name[0] != "_" and is_ours and getattr(function, "__doc__", None):
            yield name, found


def _documented(item: Any) -> Iterator[str]:
    """A block with the signature, then the docstring as Markdown."""
    is_property = isinstance(item, property) or hasattr(item, "func")
    function = getattr(item, "__func__", getattr(item, "fget", item))
    function = getattr(item, "func", function)
    if not is_property and (signature := _signature(function)):
        yield f"```py\n{signature}\n```"
    yield from _markdown(inspect.getdoc(function) or "")


def _signature(function: Any) -> str:
    """The signature as it is in the source, a line for each argument if it is long."""
    name, is_class = function.__name__, inspect.isclass(function)
    if is_class and "__init__" not in vars(function):
        return ""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (node,) = tree.body
    if is_class:
        assert isinstance(node, ast.ClassDef)
        made = [x for x in node.body if getattr(x, "name", "") == "__init__"]
        if not made:  # a dataclass: its fields
            fields = [x for x in node.body if isinstance(x, ast.AnnAssign)]
            return _wrapped(name, [*map(ast.unparse, fields)], "")
        (node,) = made
    assert isinstance(node, ast.FunctionDef)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return _wrapped(name, _arguments(node.args), "" if is_class else returns)


def _arguments(given: ast.arguments) -> list[str]:
    """Each argument as text, without `self`; defaults as in the source."""
    found: list[str] = []
    before = [*given.posonlyargs, *given.args]
    lacking = [None] * (len(before) - len(given.defaults))
    for each, default in zip(before, [*lacking, *given.defaults], strict=True):
        if each.arg not in ("self", "cls"):
            found.append(_argument(each, default))
    if given.vararg:
        found.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        found.append("*")
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(_argument(each, default))
    return found + ([f"**{_argument(given.kwarg, None)}"] if given.kwarg else [])


def _argument(given: ast.arg, default: ast.expr | None) -> str:
    text = given.arg + (
        f": {ast.unparse(given.annotation)}" if given.annotation else ""
    )
    equals = " = " if given.annotation else "="
    return text if default is None else f"{text}{equals}{ast.unparse(default)}"


def _wrapped(name: str, arguments: list[str], returns: str) -> str:
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {x}," for x in arguments), f"){returns}"])


def _markdown(text: str) -> Iterator[str]:
    """Paragraphs of a docstring; arguments, results and errors as lists."""
    for paragraph in text.split("\n\n"):
        head, _, rest = paragraph.partition("\n")
        if head.rstrip(":") in _HEADS and head.endswith(":"):
            yield f"{head.rstrip(':')}:"
            entries = re.split(r"\n(?=\S)", textwrap.dedent(rest))
            yield "\n".join(map(_entry, entries))
        elif paragraph.strip():
            yield paragraph


def _entry(text: str) -> str:
    text = " ".join(text.split())
    names, colon, meaning = text.partition(": ")
    if colon and re.fullmatch(r"\*{0,2}\w[\w.]*(, \*{0,2}\w[\w.]*)*", names):
        text = f"{', '.join(f'`{name}`' for name in names.split(', '))}: {meaning}"
    return textwrap.fill(
        f"- {text}",
        width=120,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def commands() -> str:
    """Each verb with what it takes, but for settings of a training."""
    parts = []
    for name, verb in VERBS.items():
        own = [x for x in options(verb).values() if x.section is None]
        usage = ["embedder", name, *(x.flag for x in own if x.is_positional)]
        needed = (x for x in own if x.field.default is x.field.default_factory)
        usage += [f"{x.flag} {x.metavar}" for x in needed if not x.is_positional]
        rows = [
            f"| `{x.flag}` | {_default(x)} | {_text(verb, x.field.name)} |" for x in own
        ]
        parts += [f"## {name}", f"`{' '.join(usage)}`", inspect.getdoc(verb) or ""]
        parts += ["\n".join(["| | default | |", "| --- | --- | --- |", *rows])]
    return "\n\n".join(parts) + "\n"


def _text(verb: type, name: str) -> str:
    return texts(verb)[name].replace("|", "/")


def _default(option: Option) -> str:
    default = option.field.default
    is_open = default is False or default in (dataclasses.MISSING, None, (), "")
    return "" if is_open else f"`{default}`"


def _hundreds(lines: int) -> str:
    """In hundreds: the page need not be written after each small change."""
    return f"{lines if lines < 100 else round(lines, -2):,}"


def rooms() -> str:
    """The folders of embedder in the order of imports, with their lines."""
    tree = ast.parse((ROOT / "tests" / "test_layering.py").read_text("utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS"
    )
    order: tuple[str, ...] = ast.literal_eval(_flat(value))
    rows, total = [], 0
    for room in order:
        folder = ROOT / "embedder" / room
        files = [*folder.rglob("*.py")] or [folder.with_suffix(".py")]
        first = folder / "__init__.py" if folder.is_dir() else files[0]
        text = ast.get_docstring(ast.parse(first.read_text("utf-8"))) or ""
        lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
        total += lines
        used = {name for path in files for name in _rooms_of(path)} - {room}
        shown = ", ".join(name for name in order if name in used)
        rows.append(f"| `{room}` | {_hundreds(lines)} | {_first(text)} | {shown} |")
    heads = "| folder | lines | what it holds | imports |\n| --- | ---: | --- | --- |\n"
    return heads + "\n".join([*rows, f"| all | {_hundreds(total)} | | |"]) + "\n"


def _first(text: str) -> str:
    """The first paragraph, in one line."""
    return " ".join(text.split("\n\n")[0].split())


def _flat(value: ast.expr) -> ast.expr:
    """A tuple without its stars."""
    assert isinstance(value, ast.Tuple)
    found: list[ast.expr] = []
    for each in value.elts:
        inner = each.value if isinstance(each, ast.Starred) else None
        found += inner.elts if isinstance(inner, ast.Tuple) else [each]
    return ast.Tuple(found, ast.Load())


def _rooms_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            head, *rest = node.module.split(".")
            if head == "embedder":
                yield rest[0] if rest else ""


def pages() -> dict[Path, str]:
    """Each page as it should be."""
    found = {path: rendered(path) for path in FILES}
    for path, make in zip(PAGES.values(), (api, commands, rooms), strict=True):
        text, made = path.read_text("utf-8"), make()
        found[path] = _MARKED.sub(lambda _, made=made: f"\n{made}\n", text)
    return found


def main(arguments: list[str]) -> None:
    """Writes the pages, or names those that differ."""
    is_check = "--check" in arguments
    for path, text in pages().items():
        if text != path.read_text("utf-8"):
            print(f"{path.relative_to(ROOT)}: {'differs' if is_check else 'written'}")
            if is_check:
                raise SystemExit(1)
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
