"""What a node has answered."""

from __future__ import annotations

import json
from typing import Any

import httpx

from ..errors import ProblemError, ProtocolError

#: The largest answer that is read as a whole.
MAX_ANSWER_BYTES = 64 << 20


def media_type(response: httpx.Response) -> str:
    """The media type of an answer, without parameters."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def read_json(response: httpx.Response) -> Any:
    """The JSON of a 2xx. Raises a problem for any other status."""
    body, size = [], 0
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ProtocolError(f"an answer has more than {MAX_ANSWER_BYTES} bytes")
        body.append(chunk)
    is_json = media_type(response).endswith("json")
    document, error = None, None
    try:
        document = json.loads(b"".join(body)) if is_json else None
    except ValueError as it:
        error = it
    if response.is_success:
        if response.status_code == 204:
            return None
        if error is not None or not is_json:
            raise ProtocolError(f"an answer of the type {media_type(response)!r} is not JSON") from error
        return document
    try:
        retry_after = float(response.headers.get("retry-after", ""))
    except ValueError:
        retry_after = 0.0
    raise ProblemError.of(response.status_code, document, max(retry_after, 0.0) or None)
