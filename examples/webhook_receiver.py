"""A receiver of webhooks in twenty lines: `python examples/webhook_receiver.py whsec_...` listens on port 3000 and
prints what is really from kolm."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import kolm


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            event = kolm.verify(body, dict(self.headers.items()), sys.argv[1])
        except kolm.BadSignature as error:
            self.send_error(400, str(error))
            return
        print(event["type"], event["data"]["object"].get("name", ""), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """The event's own line is enough."""


HTTPServer(("127.0.0.1", 3000), Receiver).serve_forever()
