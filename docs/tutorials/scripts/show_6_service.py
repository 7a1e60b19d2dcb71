"""
The service, end to end
=======================

A service keeps the state. Any program sends scores and, later, outcomes. This page uses nothing but Python's standard
library on the side of the client. It needs a running service, so it is shown and not run here.

You need ``pip install 'calibeat[service]'``.
"""

# %%
# Start it
# --------
# In a terminal::
#
#     calibeat serve --store calibeat.db
#
# Then, in any program:

import json
import random
import urllib.request


def post(path: str, body: dict) -> dict:
    """Send JSON, get JSON."""
    request = urllib.request.Request(f"http://localhost:8377{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


# %%
# A forecast
# ----------
# The id is yours. The same id again gets the stored forecast, so a request may be repeated after a time-out.

post("/v1/forecasts", {"stream": "paris", "id": "e1", "score": 0.83})

# %%
# The outcome, when it is known
# -----------------------------

post("/v1/outcomes", {"stream": "paris", "id": "e1", "outcome": 1})

# %%
# Many at once
# ------------
# A model that is too sure, in batches of 500. Each batch of outcomes comes one batch late.

random.seed(0)
waiting: list[dict] = []
for batch in range(20):
    scores = [random.random() for _ in range(500)]
    events = [{"stream": "paris", "id": f"{batch}-{i}", "score": score} for i, score in enumerate(scores)]
    forecasts = post("/v1/forecasts", {"events": events})["forecasts"]
    if waiting:
        post("/v1/outcomes", {"events": waiting})
    waiting = [
        {"stream": "paris", "id": event["id"], "outcome": int(random.random() < 0.3 + 0.4 * event["score"])}
        for event in events
    ]
print(scores[0], forecasts[0]["probability"])

# %%
# Look at the stream
# ------------------
# Events, outcomes, what is pending, the log-loss of the raw and of the calibrated score. In a browser,
# ``http://localhost:8377/`` shows the same as pictures.

with urllib.request.urlopen("http://localhost:8377/v1/streams/paris") as answer:
    print(json.load(answer))

# %%
# :doc:`/reference/http` lists every call. :doc:`/how-to/deploy` says how to run it in production.
