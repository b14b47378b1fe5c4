"""Signatures of requests, as Standard Webhooks say."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping

from .errors import AbideError

#: How far the clock of a node may be from this one, in seconds.
TOLERANCE = 300.0


class SignatureError(AbideError):
    """A request has no valid signature."""


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Iterable[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> None:
    """Raises `SignatureError` unless one of the secrets has signed the body, as Standard Webhooks say.
    Names of headers are in lower case."""
    id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "")
    if not (id and stamp and given):
        raise SignatureError("the request is not signed")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise SignatureError("webhook-timestamp is no time")
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance:
        raise SignatureError("webhook-timestamp is too old or too new")
    signed = f"{id}.{stamp}.".encode() + body
    expected = [hmac.new(key_of(secret), signed, hashlib.sha256).digest() for secret in secrets]
    for version, _, text in (part.partition(",") for part in given.split(" ")[:16]):
        try:
            signature = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            continue
        if version == "v1" and any(hmac.compare_digest(signature, it) for it in expected):
            return
    raise SignatureError("no signature is that of a known secret")


def key_of(secret: str) -> bytes:
    """The bytes of a secret. Raises `ValueError` if it is none."""
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("secrets: a secret is not whsec_ and base64") from None
