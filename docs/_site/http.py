"""The reference page of the service, from the document that the service itself serves as /openapi.json."""

from __future__ import annotations

import json
from typing import Any

from calibeat.service.openapi import document
from calibeat.service.wire import DEFAULT_LIMITS

from .pages import table, write

ABOUT = """# HTTP

`calibeat serve --store calibeat.db` answers on `http://127.0.0.1:8377`. Bodies and answers are JSON
(`Content-Type: application/json`). This page is made from the schema that a running service serves as `/openapi.json`.
`/` is the dashboard."""
RULES = """## Rules

- **Nobody is answered before the commit.** What was answered survives a crash.
- **A repeated request changes nothing.** The same id with the same score gets the stored forecast. Another score or
  another stream is refused with 409.
- **A batch of forecasts is taken whole or refused whole.** The error names the first bad event.
- **In a batch of outcomes each event gets its own status.** The good ones are learnt.
- **Outcomes may come at any time, in any order.**
- **Tokens.** `Authorization: Bearer TOKEN`. A token has the scope `write` or `read`. `calibeat token create` makes one.
  Without a token only the machine itself can connect.

Every error has one shape:

```json
{"error": {"code": "unknown_stream", "message": "stream must be one that has events, got 'rome'", "at": "stream"}}
```"""


def kind_of(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind_of(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    text = {"null": "null"}.get(str(schema.get("type", "")), str(schema.get("type", "anything")))
    low, high = schema.get("minimum"), schema.get("maximum")
    return f"{text} from {low:g} to {high:g}" if low is not None and high is not None else text


def types(content: dict[str, Any]) -> str:
    """What a body or an answer holds."""
    return " or ".join(kind_of(media["schema"]) if media["schema"] else kind for kind, media in content.items())


def call(path: str, verb: str, told: dict[str, Any]) -> list[str]:
    """One call."""
    parts = [f"### {verb.upper()} {path}", f"{told['summary']}."]
    if rows := [[f"`{p['name']}`", p.get("description", ""), kind_of(p["schema"])] for p in told.get("parameters", [])]:
        parts.append(table(["parameter", "meaning", "type"], rows))
    body = told.get("requestBody", {}).get("content", {})
    if body:
        parts.append(f"Body: {types(body)}.")
        examples = body["application/json"].get("examples", {})
        parts += [f"```json\n{json.dumps(example['value'])}\n```" for example in examples.values()]
    rows = [
        [status, answer["description"], types(answer["content"]) if status == "200" else ""]
        for status, answer in told["responses"].items()
    ]
    return [*parts, table(["status", "when", "answer"], rows)]


def component(name: str, schema: dict[str, Any]) -> list[str]:
    """One type."""
    required = schema.get("required", [])
    rows = [
        [f"`{field}`", kind_of(kind), "yes" if field in required else "no", kind.get("description", "")]
        for field, kind in schema.get("properties", {}).items()
    ]
    return [f"### {name}", schema.get("description", ""), table(["field", "type", "required", "meaning"], rows)]


def generate() -> None:
    """The page."""
    told = document(DEFAULT_LIMITS)
    calls = [(path, verb, one) for path, verbs in told["paths"].items() for verb, one in verbs.items()]
    parts = [
        ABOUT,
        table(["call", "what it does"], [[f"`{v.upper()} {path}`", one["summary"]] for path, v, one in calls]),
    ]
    parts += [RULES, "## Calls", *(part for one in calls for part in call(*one))]
    parts += ["## Types", *(part for one in told["components"]["schemas"].items() for part in component(*one))]
    write("reference/http.md", "\n\n".join(part for part in parts if part))
