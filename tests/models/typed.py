"""An SDK's request types as a judge: what a `TypedDict` does not know is an error."""

import functools
import sys
import typing

from pydantic import ConfigDict, TypeAdapter


def forbid(package):
    """Makes every `TypedDict` of a package refuse other fields than its own."""
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            for kind in vars(module).values():
                if typing.is_typeddict(kind):
                    kind.__pydantic_config__ = ConfigDict(extra="forbid")


@functools.cache
def adapter(kind):
    return TypeAdapter(kind)


def read(kind, body):
    """The body as this type reads it; lists too, which are otherwise only read when they are used."""
    return whole(adapter(kind).validate_python(body))


def whole(value):
    if isinstance(value, dict):
        return {key: whole(field) for key, field in value.items()}
    if hasattr(value, "__next__") or isinstance(value, (list, tuple)):
        return [whole(item) for item in value]
    return value
