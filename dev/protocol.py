"""Write ui/src/lib/protocol.ts from the documents that the server sends, and ramp.ts from the figures' colours.

python dev/protocol.py
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from glassformer.explain import explanation
from glassformer.figures.colour import STEPS, shade
from glassformer.page import documents

FOLDER = Path(__file__).parent.parent / "ui" / "src" / "lib"
NOTE = "// Written by dev/protocol.py; change the Python file and run it again.\n"


def kind(given: Any) -> str:
    """A Python type in TypeScript."""
    origin, inner = get_origin(given), get_args(given)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(kind(one) for one in inner))
    if origin is Literal:
        return " | ".join(f'"{one}"' for one in inner)
    if origin is tuple and (len(inner) != 2 or inner[1] is not Ellipsis):
        return f"[{', '.join(kind(one) for one in inner)}]"
    if origin in (list, tuple):
        within = kind(inner[0])
        return f"({within})[]" if "|" in within else f"{within}[]"
    if origin is dict:
        return f"Record<{kind(inner[0])}, {kind(inner[1])}>"
    plain = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null", Any: "unknown"}
    return plain.get(given) or given.__name__


def interface(struct: type[msgspec.Struct]) -> str:
    """One struct as an interface; its docstring's first sentence goes with it."""
    info = msgspec.structs.fields(struct)
    first = re.split(r"(?<=\.)\s|\n\n", inspect.getdoc(struct))[0]
    lines = [f"/** {' '.join(first.split()).rstrip('.')}. */"]
    lines.append(f"export interface {struct.__name__} {{")
    config = struct.__struct_config__
    if config.tag is not None:
        lines.append(f'  {config.tag_field}: "{config.tag}";')
    lines += [f"  {field.name}: {kind(field.type)};" for field in info]
    return "\n".join([*lines, "}"])


def protocol() -> str:
    """The whole of protocol.ts."""
    made = [NOTE]
    for module in (explanation, documents):
        for struct in vars(module).values():
            if inspect.isclass(struct) and issubclass(struct, msgspec.Struct) and struct.__module__ == module.__name__:
                made.append(interface(struct))
    made.append("export type Figure = HeatMap | Series | TokenScores | Graph | Table | Points;")
    return "\n\n".join(made) + "\n"


def ramp() -> str:
    """The colours of the figures, light and dark, as two lists."""
    lists = [f"[{', '.join(repr(shade(i / (STEPS - 1), dark)) for i in range(STEPS))}]" for dark in (False, True)]
    return f"{NOTE}\nexport const LIGHT = {lists[0]};\n\nexport const DARK = {lists[1]};\n".replace("'", '"')


if __name__ == "__main__":
    (FOLDER / "protocol.ts").write_text(protocol())
    (FOLDER / "ramp.ts").write_text(ramp())
