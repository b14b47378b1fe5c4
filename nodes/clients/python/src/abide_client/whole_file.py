"""A file that is there as a whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from types import TracebackType


class WholeFile:
    """Writes beside a file of this name, and takes its place at the end, unless something was raised. Only
    the user who writes it may read it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)

    def __enter__(self) -> WholeFile:
        directory, name = os.path.split(self._path)
        self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115
            dir=directory, prefix=f"{name}.", suffix=".part", delete=False
        )
        return self

    def write(self, piece: bytes) -> None:
        """Adds a piece."""
        self._file.write(piece)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_placed = False
        try:
            self._file.close()
            if error is None:
                os.replace(self._file.name, self._path)
                is_placed = True
        finally:
            if not is_placed:
                os.unlink(self._file.name)
