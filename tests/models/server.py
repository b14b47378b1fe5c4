"""A model server that is made of a provider's own Python SDK: `server.py PROVIDER`.

Every request is read by the SDK's request types, which refuse what they do not know, and answered
with a stream of what its response types write. The story is that of `story.py`, a reply a request.
It prints its address, and then runs until it is killed.
"""

import importlib
import json
import sys
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

provider = importlib.import_module(f"providers.{sys.argv[1]}")
asked = 0


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        global asked
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            if self.path != provider.PATH:
                raise ValueError(f"asked at {self.path}, not at {provider.PATH}")
            provider.check(asked, json.loads(body))
            reply = provider.reply(asked)
        except Exception as error:
            traceback.print_exc()
            answer = json.dumps({"error": {"message": f"{type(error).__name__}: {error}"}})
            return self.answer(400, "application/json", [answer])
        asked += 1
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
