"""The warehouse: a worker that prints labels, from behind a firewall that lets nobody in.

It asks the nodes for calls of the queue `warehouse`. While it is away they wait; if it dies at one, it gets that one
again, under the same key.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from abide_client.worker import Rejection, Request, Worker

ORDERS = {it["id"]: it for it in json.loads(Path(os.environ["SHOP_ORDERS"]).read_text("utf-8"))}
#: What the printer was given, a line for each label.
ROLL = Path(os.environ["WAREHOUSE_ROLL"])
#: How long a label takes. The worker may be killed meanwhile.
PRINT_SECONDS = float(os.environ.get("WAREHOUSE_PRINT_SECONDS", "1"))

# The nodes and the key are those of ABIDE_URL and ABIDE_TOKEN. What a dead worker had is free after five seconds.
worker = Worker("warehouse", name="printer-1", lease=5.0)


@worker.tool("print_label")
def print_label(args: Any, request: Request) -> dict[str, Any]:
    order = ORDERS.get(args["order"])
    # A customer's token permits only conversations whose ids begin with the customer's name.
    if order is None or request.conversation_id.split(".")[0] != order["customer"]:
        raise Rejection(f"The customer has no order {args['order']}.")
    label = f"L-{order['id']}"
    print(f"label {label}: attempt {request.attempt}", flush=True)
    # The key is the same for every attempt of this call: what the printer has is not printed again.
    given = ROLL.read_text("utf-8") if ROLL.exists() else ""
    if request.idempotency_key not in given:
        with ROLL.open("a", encoding="utf-8") as roll:
            roll.write(f"{label} {request.idempotency_key}\n")
    time.sleep(PRINT_SECONDS)
    return {"label": label}


if __name__ == "__main__":
    print("warehouse: waits for work", flush=True)
    worker.run()
