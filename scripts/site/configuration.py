"""The page of the configuration, from the tables that check it and an example's comments."""

from __future__ import annotations

import json
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from scripts.site.markdown import cell, code, table
from streamer.daemon.config.tables import Config

EXAMPLE = Path(__file__).parents[2] / "configs" / "production.toml"


def page() -> str:
    meanings = comments(EXAMPLE.read_text())
    parts: list[str] = []
    for name, field in Config.model_fields.items():
        model: Any = field.annotation
        rows = [
            (code(key), cell(kind(held)), shown_default(held), cell(meanings[name, key]))
            for key, held in model.model_fields.items()
        ]
        parts.append(f"## [{name}]\n\n{model.__doc__}\n")
        parts.append(table(["Key", "Type", "Default", "Meaning"], rows))
    return "\n".join(parts)


def comments(text: str) -> dict[tuple[str, str], str]:
    """The comment above each key of a TOML file, by table and key; a key may be a comment, too."""
    found: dict[tuple[str, str], str] = {}
    name, above = "", []
    for line in text.splitlines():
        words = line.removeprefix("# ")
        key, equals, _ = words.partition(" = ")
        if line.startswith("["):
            name, above = line.strip("[]"), []
        elif equals and key.isidentifier():
            found[name, key] = " ".join(above)
            above = []
        elif line.startswith("# "):
            above.append(words)
    return found


def kind(field: FieldInfo) -> str:
    """What a value may be, in words."""
    limits = {type(limit): limit for limit in field.metadata}
    low, high = limits.get(annotated_types.Ge), limits.get(annotated_types.Le)
    below = limits.get(annotated_types.Lt)
    words = _type(field.annotation)
    if low is not None and high is not None:
        return f"{words}, {low.ge:,} to {high.le:,}"
    if low is not None:
        # limits such as those of a 63-bit number are of no interest
        return f"{words}, {low.ge:,} or more" if below is None or below.lt >= 1 << 31 else words
    return words


_TYPES = {int: "integer", float: "number", str: "text", bool: "true or false"}


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(json.dumps(part) for part in parts)
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in parts if part is not NoneType)
    if origin is list:
        return f"list of {_type(parts[0])}s"
    if origin is dict:
        return f"table of {_type(parts[1])}"
    return _TYPES[annotation]


def shown_default(field: FieldInfo) -> str:
    """The default as in TOML; a machine-dependent one is described with its key."""
    if field.default is PydanticUndefined or field.default is None:
        return "see there"
    return code(json.dumps(field.default))
