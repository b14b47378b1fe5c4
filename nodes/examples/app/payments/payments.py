"""The payments of the shop: a tool that pays money back, once for each call, however often a node asks, and one that
adds up what was paid.

A node that dies asks again through another one, under the same key. The ledger is a file, so that this holds
when this process dies, too.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from abide_client.http_tools import HttpTools, Rejection, Request

ORDERS = {it["id"]: it for it in json.loads(Path(os.environ["SHOP_ORDERS"]).read_text("utf-8"))}
LEDGER = os.environ["PAYMENTS_LEDGER"]
#: How long the bank takes. A node may be killed meanwhile.
BANK_SECONDS = float(os.environ.get("PAYMENTS_BANK_SECONDS", "1"))

tools = HttpTools(secrets=[os.environ["SHOP_TOOLS_SECRET"]])


def open_ledger() -> sqlite3.Connection:
    ledger = sqlite3.connect(LEDGER, isolation_level=None, timeout=10)
    ledger.execute(
        "CREATE TABLE IF NOT EXISTS refunds (key TEXT PRIMARY KEY, customer_order TEXT NOT NULL,"
        " cents INTEGER NOT NULL, approved_by TEXT NOT NULL)"
    )
    return ledger


@tools.tool("refund")
def refund(args: Any, request: Request) -> Iterator[dict[str, Any]]:
    order = ORDERS.get(args["order"])
    # A customer's token permits only conversations whose ids begin with the customer's name.
    if order is None or request.conversation_id.split(".")[0] != order["customer"]:
        raise Rejection(f"The customer has no order {args['order']}.")
    # The nodes asked for an approval. If a later definition of the agent forgets to, nothing is paid.
    if not request.approvals:
        raise Rejection("A refund needs an approval.")
    approver = request.approvals[-1]["sub"]
    print(f"refund of order {order['id']}: attempt {request.attempt}, approved by {approver}", flush=True)
    yield {"text": "The bank is asked."}
    time.sleep(BANK_SECONDS)
    cents = round(args["amount"] * 100)
    with closing(open_ledger()) as ledger, ledger:
        ledger.execute("BEGIN IMMEDIATE")
        (others,) = ledger.execute(
            "SELECT coalesce(sum(cents), 0) FROM refunds WHERE customer_order = ? AND key <> ?",
            (order["id"], request.idempotency_key),
        ).fetchone()
        if others + cents > round(order["total"] * 100):
            raise Rejection("More than was paid cannot be paid back.")
        # The key is the same for every attempt of this call: the second one changes nothing.
        ledger.execute(
            "INSERT OR IGNORE INTO refunds VALUES (?, ?, ?, ?)",
            (request.idempotency_key, order["id"], cents, approver),
        )
    return {"paid": f"€ {cents / 100:.2f}", "reference": f"R-{order['id']}", "approved_by": approver}


@tools.tool("sum_refunds")
def sum_refunds(_args: Any, _request: Request) -> dict[str, Any]:
    with closing(open_ledger()) as ledger:
        refunds, cents = ledger.execute("SELECT count(*), coalesce(sum(cents), 0) FROM refunds").fetchone()
    return {"refunds": refunds, "paid": f"€ {cents / 100:.2f}"}


def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """The tools, and for the shop the list of refunds. Only the shop and the nodes reach this server."""
    if environ["REQUEST_METHOD"] != "GET":
        return tools.wsgi(environ, start_response)
    with closing(open_ledger()) as ledger:
        rows = ledger.execute("SELECT customer_order, cents, approved_by FROM refunds").fetchall()
    refunds = [{"order": order, "amount": cents / 100, "approved_by": by} for order, cents, by in rows]
    start_response("200 OK", [("content-type", "application/json"), ("cache-control", "no-store")])
    return [json.dumps(refunds).encode()]


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Silent(WSGIRequestHandler):
    """Requests are not logged."""

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    host, port = os.environ.get("PAYMENTS_LISTEN", "127.0.0.1:3001").split(":")
    with make_server(host, int(port), app, Server, Silent) as server:
        print(f"payments: http://{host}:{server.server_port}/", flush=True)
        server.serve_forever()
