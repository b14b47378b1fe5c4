"""Durable conversations between people, models and tools: the client of Abide."""

from ._async.calls import AsyncCall
from ._async.client import AsyncAbide
from ._async.conversation import AsyncConversation
from ._async.resources import AsyncAgents, AsyncErasures, AsyncSchedules, AsyncWebhooks
from ._async.state import AsyncConversationState
from ._async.turn import AsyncTurn
from ._sync.calls import Call
from ._sync.client import Abide
from ._sync.conversation import Conversation
from ._sync.resources import Agents, Erasures, Schedules, Webhooks
from ._sync.state import ConversationState
from ._sync.turn import Turn
from .errors import (
    AbideError,
    BusyError,
    ConflictError,
    CutOffError,
    DeadlineError,
    ForbiddenError,
    InvalidRequestError,
    NoAnswerError,
    NotFoundError,
    OverloadedError,
    ProblemError,
    ProtocolError,
    StaleError,
    TooLargeError,
    TurnCancelledError,
    TurnError,
    TurnFailedError,
    TurnHaltedError,
    UnauthorizedError,
    UnavailableError,
    WaitingError,
)
from .items import Answer, Complete, End, Progress, Restart, Result, Start, Text, Thinking

__version__ = "0.1.0"

__all__ = [
    "Abide",
    "AbideError",
    "Agents",
    "Answer",
    "AsyncAbide",
    "AsyncAgents",
    "AsyncCall",
    "AsyncConversation",
    "AsyncConversationState",
    "AsyncErasures",
    "AsyncSchedules",
    "AsyncTurn",
    "AsyncWebhooks",
    "BusyError",
    "Call",
    "Complete",
    "ConflictError",
    "Conversation",
    "ConversationState",
    "CutOffError",
    "DeadlineError",
    "End",
    "Erasures",
    "ForbiddenError",
    "InvalidRequestError",
    "NoAnswerError",
    "NotFoundError",
    "OverloadedError",
    "ProblemError",
    "Progress",
    "ProtocolError",
    "Restart",
    "Result",
    "Schedules",
    "StaleError",
    "Start",
    "Text",
    "Thinking",
    "TooLargeError",
    "Turn",
    "TurnCancelledError",
    "TurnError",
    "TurnFailedError",
    "TurnHaltedError",
    "UnauthorizedError",
    "UnavailableError",
    "WaitingError",
    "Webhooks",
]
