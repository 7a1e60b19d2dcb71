"""
The service, end to end
=======================

A service keeps the state of many streams in one place. Programs in any language send it scores and, later, outcomes.
This page starts one, uses it, kills it and starts it again.

You need ``pip install 'calibeat[service,client]'``.
"""

# %%
# Start it
# --------
# In a terminal you would type ``calibeat serve --store calibeat.db``. Here a function does it, on a free port.

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

folder = tempfile.TemporaryDirectory()
store = str(Path(folder.name) / "calibeat.db")


def start() -> tuple[subprocess.Popen, str]:
    """A service, and its address, which it prints."""
    command = [sys.executable, "-m", "calibeat", "serve", "--store", store, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    line = process.stdout.readline()
    while line and " at http" not in line:  # "calibeat made a new store" comes first
        line = process.stdout.readline()
    return process, line.partition(" at ")[2].partition(";")[0].strip()


service, url = start()

# %%
# A forecast, and its outcome
# ---------------------------
# Any program that speaks HTTP can ask. The id is yours. The same id again gets the stored forecast, so a request may be
# repeated after a time-out.

import httpx

print(httpx.post(f"{url}/v1/forecasts", json={"stream": "paris", "id": "e1", "score": 0.83}).json())
print(httpx.post(f"{url}/v1/outcomes", json={"stream": "paris", "id": "e1", "outcome": 1}).json())
print(httpx.post(f"{url}/v1/outcomes", json={"stream": "paris", "id": "e1", "outcome": 1}).json())

# %%
# A mistake gets a sentence.

print(httpx.post(f"{url}/v1/outcomes", json={"stream": "paris", "id": "e1", "outcome": 0}).json())

# %%
# Many at once
# ------------
# From Python there is a client, which retries without counting an event twice. A model that is too sure, in batches
# of 500; each batch of outcomes comes one batch late.

from calibeat.client import Client

random.seed(0)
waiting = []
with Client(url) as client:
    for batch in range(20):
        events = [{"stream": "paris", "id": f"{batch}-{i}", "score": random.random()} for i in range(500)]
        answers = client.predict_many(events)
        if waiting:
            client.outcomes(waiting)
        waiting = [
            {"stream": "paris", "id": event["id"], "outcome": int(random.random() < 0.3 + 0.4 * event["score"])}
            for event in events
        ]
for event, answer in list(zip(events, answers, strict=True))[:4]:
    print(f"score {event['score']:.3f}  forecast {answer.probability:.3f}  truth {0.3 + 0.4 * event['score']:.3f}")

# %%
# Kill it
# -------
# Nobody was answered before the store had it on the disk. So nothing is lost.

service.kill()
service.wait()
service.stdout.close()
service, url = start()
stream = httpx.get(f"{url}/v1/streams/paris").json()
print(json.dumps({name: stream[name] for name in list(stream)[:4]}, indent=1))

# %%
# The outcomes that were under way when it was killed are taken now.

with Client(url) as client:
    print(set(client.outcomes(waiting)))

# %%
# Stop it
# -------
# A signal lets it finish what it has begun.

service.terminate()
print(service.wait())
service.stdout.close()
folder.cleanup()

# %%
# ``http://localhost:8377/`` shows the same as pictures. :doc:`/reference/http` lists every call.
# :doc:`/how-to/deploy` says how to run it in production.
