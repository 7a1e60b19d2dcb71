"""A real PostgreSQL for the tests: one server a session, in a folder of its own, and a new database for each test.

The server refuses to run as root. There it is started as another user: `postgres`, or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
from components import postgres_folder


def _other_user() -> pwd.struct_passwd | None:
    """Who the server runs as, where that is not us."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL needs a user that is not root, got neither postgres nor nobody")


class Postgres:
    """A server with its data in a temporary folder; it listens on a socket there, and nowhere else."""

    def __init__(self, programs: Path, *, durable: bool = False) -> None:
        self._programs, self._user = programs, _other_user()
        self.folder = Path(tempfile.mkdtemp(prefix="calibeat-pg-", dir="/tmp"))
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-D", "data", "-U", "calibeat", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        settings = self.folder / "data" / "postgresql.conf"
        with settings.open("a") as file:
            file.write(f"listen_addresses = ''\nunix_socket_directories = '{self.folder}'\nshared_buffers = 32MB\n")
            if not durable:
                file.write("fsync = off\nfull_page_writes = off\n")  # processes are killed here, not machines
            file.write("max_connections = 30\ndeadlock_timeout = 200ms\nlog_min_messages = fatal\n")
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    def _options(self) -> dict[str, object]:
        if self._user is None:
            return {"cwd": self.folder}
        return {"cwd": self.folder, "user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": str(self.folder), "LC_ALL": "C"},
            **self._options(),  # type: ignore[call-overload]
        )
        if done.returncode:
            raise RuntimeError(f"{program} must work, got {done.stderr}")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._server = subprocess.Popen(
            [self._programs / "postgres", "-D", "data"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(self.folder), "LC_ALL": "C"},
            **self._options(),  # type: ignore[call-overload]
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self._server.poll() is not None:  # processes of a server that was killed are still there
                time.sleep(0.1)
                return self.start()
            try:
                psycopg.connect(self._address("postgres"), autocommit=True).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return None
        raise RuntimeError("PostgreSQL must start, got no answer in a minute")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: at once, in order. SIGQUIT: as a crash. SIGKILL is for the whole group of processes."""
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(timeout=60)
            self._server = None

    def kill(self) -> None:
        """As a crash: the first process with SIGKILL; the others notice and end."""
        assert self._server is not None
        self._server.kill()
        self._server.wait(timeout=60)
        self._server = None

    def cut_sessions(self) -> None:
        """End all sessions but our own."""
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )

    def set(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = {value}")
            connection.execute("SELECT pg_reload_conf()")

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._address(name)

    def _address(self, name: str) -> str:
        return f"postgresql://calibeat@/{name}?host={self.folder}"

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self.stop(signal.SIGQUIT)  # at once: nobody needs the data any more
        shutil.rmtree(self.folder, ignore_errors=True)


def cut(engine: Any) -> None:
    """End the session of an engine, as an administrator does."""
    session = engine.store.connection.database.info
    with psycopg.connect(session.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (session.backend_pid,))


def start(*, durable: bool = False) -> Postgres:
    """A server, which syncs the disk only if `durable`. The test skips where there is none, and fails in CI."""
    return Postgres(postgres_folder(), durable=durable)
