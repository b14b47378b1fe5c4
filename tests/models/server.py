"""A model server built on a provider's own Python SDK: `server.py PROVIDER`.

Every request is parsed by the SDK's request types, which refuse unknown fields, and is answered with a
stream that its response types serialise. The replies are those of `scenario.py`, one per request. The
server prints its address, and then runs until it is killed.
"""

import importlib
import json
import sys
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

provider = importlib.import_module(f"providers.{sys.argv[1]}")
request_count = 0


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        global request_count
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            if self.path != provider.PATH:
                raise ValueError(f"the path is {self.path}, not {provider.PATH}")
            provider.check(request_count, json.loads(body))
            reply = provider.reply(request_count)
        except Exception as error:
            traceback.print_exc()
            answer = json.dumps({"error": {"message": f"{type(error).__name__}: {error}"}})
            return self.answer(400, "application/json", [answer])
        request_count += 1
        self.answer(200, provider.TYPE, reply)

    def answer(self, status, kind, pieces):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece.encode())
            self.wfile.flush()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
