"""A service behind nginx, below a path, as people put it beside other services."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components import component
from served import wait_until

CONFIG = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location = / {{ return 404; }}
    location {path} {{ proxy_pass {url}/; proxy_set_header Host $http_host; }}
  }}
}}
"""


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def below(path: str, url: str, folder: Path) -> Iterator[str]:
    """The address of a service below a path such as ``/sub/``."""
    (nginx,) = component("nginx")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, port=port, path=path, url=url))
    process = subprocess.Popen([nginx, "-e", f"{folder}/error.log", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port))
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        process.terminate()
        process.wait(20)
