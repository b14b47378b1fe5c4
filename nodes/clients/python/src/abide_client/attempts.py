"""How often a request was tried, and when it is tried again."""

from __future__ import annotations

import random
import time

import httpx

from .errors import NoAnswerError, ProblemError, ProtocolError

#: The first delay before a retry, and the longest.
RETRY_DELAY = 0.1
MAX_RETRY_DELAY = 5.0
#: The statuses with which a node, or a proxy before it, asks for a later retry.
RETRY_STATUSES = (429, 502, 503, 504)


def retry_delay(tries: int, urls: int) -> float:
    """The delay before the next try: it grows after every URL was tried once."""
    grown = RETRY_DELAY * 2.0 ** min(tries // urls, 16)
    return min(grown, MAX_RETRY_DELAY) * (0.5 + random.random() / 2)


def describe(error: Exception) -> str:
    """The type of an error, and what it says."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class Attempts:
    """The attempts of one request at this many nodes, up to `end`, a time of the monotonic clock. `renews`
    says whether a credential that was refused can be asked for anew."""

    def __init__(self, urls: int, end: float, *, renews: bool) -> None:
        self._urls = urls
        self._end = end
        self._renews = renews
        self._tries = 0
        self._lies = 0
        #: Whether a node has refused the credential.
        self.refused = False

    def delay_after(self, error: Exception, may_repeat: bool = True) -> float | None:
        """The delay before another node is tried; None: the same one is asked at once, with a new
        credential. Raises what the error means for the caller if nothing is tried any more."""
        delay = retry_delay(self._tries, self._urls)
        problem = error
        if isinstance(error, ProblemError):
            if error.status == 401 and self._renews and may_repeat and not self.refused:
                self.refused = True
                return None
            if error.status not in RETRY_STATUSES:
                raise error
            delay = max(delay, error.retry_after or 0.0)
        elif isinstance(error, ProtocolError):
            self._lies += 1
            if self._lies >= self._urls:
                raise error
        elif isinstance(error, httpx.TransportError):
            # Without a complete answer, whether the node acted is unknown: try again.
            problem = NoAnswerError(f"no node answered in time: {describe(error)}")
            problem.__cause__ = error
        else:
            raise error
        self._tries += 1
        if not may_repeat or time.monotonic() + delay >= self._end:
            raise problem
        return delay
