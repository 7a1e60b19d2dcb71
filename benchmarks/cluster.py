"""A standalone cluster of Spark on loopback: a master and two workers, each a process that can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

CORES, MEMORY = 1, "2g"  # of a worker


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """``with Cluster(folder) as cluster``: `cluster.address` is the master's; `kill(0)` and `start(0)` a worker."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        import pyspark

        self._folder, self._home = folder, Path(pyspark.__file__).parent
        self._port = free_port()
        self.address = f"spark://127.0.0.1:{self._port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.workers = workers

    def __enter__(self) -> Cluster:
        self._run("master", "Master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        self._wait()
        for number in range(self.workers):
            self.start(number)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self._end(name)

    def start(self, number: int) -> None:
        """Start a worker."""
        work = self._folder / f"work-{number}"
        size = ("--cores", str(CORES), "--memory", MEMORY, "--webui-port", "0", "--work-dir", str(work))
        self._run(f"worker-{number}", "Worker", "--host", "127.0.0.1", *size, self.address)

    def kill(self, number: int) -> None:
        """End a worker, its executors and their Python processes with SIGKILL."""
        self._end(f"worker-{number}")

    def _run(self, name: str, role: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
        }
        place = f"org.apache.spark.deploy.{role.lower()}.{role}"
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._home / "bin" / "spark-class"), place, *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # so that executors can be killed with their worker
            )

    def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            time.sleep(0.2)
        raise TimeoutError("the master of Spark did not come up within two minutes")


def python_seconds() -> float:
    """CPU seconds so far of the Python processes of Spark's executors, also of those that have ended."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0.0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / tick
    return total
