"""A web address that takes alarms, for the tests of webhooks."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver(ThreadingHTTPServer):
    """Takes alarms, after it has failed as often as it is told."""

    daemon_threads = True

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses, self.taken = list(statuses), list[tuple[dict[str, str], bytes]]()
        self.tries = 0
        self.hold: threading.Event | None = None  # answers wait for it
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/alarms"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One delivery."""

    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.tries += 1
        if self.server.hold is not None:
            self.server.hold.wait(30)
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        if status == 204:
            self.server.taken.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(status)
        if status == 302:
            self.send_header("location", "http://127.0.0.1:9/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Silence."""
