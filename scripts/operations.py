"""Writes docs/operations.md from the registry: `make docs`.

What an operation's rule is and what it sends, the rule says itself
(`ops.rules.stated`); a family is the module that registers its operations.
"""

import importlib
import inspect
import pkgutil
import sys
from itertools import groupby
from pathlib import Path

import spmdlayer
from spmdlayer.ops.registry import REGISTRY
from spmdlayer.ops.rules import statement

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operations.md"
PACKAGES = ("ops", "nn", "special", "linalg", "fft", "halo")
NAMESPACES = ("special", "linalg", "fft")  # beside the top one
HEAD = """# Operations

Made from the registry by `make docs`; do not edit.

Each operation runs on local tensors and on distributed ones, and is written once: what it computes, its gradient, and
the rule that says in which layouts its local code may run. Operands that do not lie as the rule has them are resharded
first, which sends what the plan of that reshard says. Pieces keep their offsets, also uneven and empty ones and blocks
dealt out in turn (`Shard(d, block=b)`); where two operands are cut in different places the left one is followed.

- *gradient*: "any order", or none. It is a composition of operations, so it lies and communicates as these do.
- *rule*: in words, or in factors: in `"mk,kn->mn"` a dim that a letter names may be sharded, in all operands that have
  the letter. Then the result is sharded there too or, where the letter is summed, `Partial("sum")`. Dims in capitals
  must be whole.
- *sends*: what travels beyond such reshards.

Names without arguments are what other operations are made of, gradients above all. Functions that are compositions of
operations (`mean`, `var`, `norm`, ...) are not listed.
"""


def import_all():
    """Import every module of the package, so that the registry is complete."""
    for module in pkgutil.walk_packages(spmdlayer.__path__, "spmdlayer."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def call_text(op):
    """How users call an operation; its name alone where they do not."""
    for namespace in (spmdlayer, *(getattr(spmdlayer, name) for name in NAMESPACES)):
        function = getattr(namespace, op.name, None)
        own = function is op.public or getattr(function, "__module__", None) == op.family
        if own or (namespace is not spmdlayer and function is not None and op.family.startswith(namespace.__name__)):
            prefix = "" if namespace is spmdlayer else namespace.__name__.rpartition(".")[2] + "."
            return f"`{prefix}{op.name}{inspect.signature(function)}`"
    return f"`{op.name}`"


def rows(ops):
    """The rows of a table: operations of which all else is equal stand together."""

    def rest(op):
        return ("any order" if op.differentiable else "none", *statement(op))

    for cells, members in groupby(sorted(ops, key=rest), rest):
        calls = ", ".join(call_text(op) for op in sorted(members, key=lambda op: op.name))
        yield f"| {calls} | {' | '.join(cells)} |"


def place(op):
    """Where an operation's family stands on the page."""
    package = op.family.split(".")[1]
    return PACKAGES.index(package), op.family


def page():
    """The text of docs/operations.md."""
    import_all()
    lines = [HEAD]
    for family, ops in groupby(sorted(REGISTRY.values(), key=place), lambda op: op.family):
        title = sys.modules[family].__doc__.partition("\n")[0].rstrip(".")
        lines += [
            f"## {title}",
            "",
            "| operation | gradient | rule | sends |",
            "|---|---|---|---|",
            *rows(list(ops)),
            "",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
