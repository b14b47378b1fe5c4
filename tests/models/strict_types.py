"""Validates requests strictly against an SDK's types: a field that a `TypedDict` does not have is an error."""

import functools
import sys
import typing

from pydantic import ConfigDict, TypeAdapter


def forbid(package):
    """Makes every `TypedDict` of a package refuse unknown fields."""
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            for kind in vars(module).values():
                if typing.is_typeddict(kind):
                    kind.__pydantic_config__ = ConfigDict(extra="forbid")


@functools.cache
def adapter(kind):
    return TypeAdapter(kind)


def read(kind, body):
    """Parses the body as this type, including lists, which are otherwise parsed lazily."""
    return evaluate(adapter(kind).validate_python(body))


def evaluate(value):
    if isinstance(value, dict):
        return {key: evaluate(field) for key, field in value.items()}
    if hasattr(value, "__next__") or isinstance(value, (list, tuple)):
        return [evaluate(item) for item in value]
    return value
