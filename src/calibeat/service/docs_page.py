"""`/docs`: the document of `/openapi.json` as a page for people. It needs no script and asks no other server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any

from . import openapi
from .dashboard import Asset, make_asset
from .wire import Limits

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>calibeat HTTP</title>
<link rel="icon" href="static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="static/dashboard.css">
</head>
<body class="docs">
<header><div class="masthead"><p class="brand"><a href="./">calibeat</a></p>
<p class="title">HTTP, version {version}</p></div></header>
<main id="main">
<h1>HTTP</h1>
<p class="lead">{description} Bodies and answers are JSON in UTF-8. Where there are tokens, send
<code>Authorization: Bearer TOKEN</code>. The same for programs: <a href="openapi.json">openapi.json</a>.</p>
{contents}
{operations}
<section class="inner" id="types"><h2>Types</h2>
{types}
</section>
</main>
</body>
</html>
"""


@lru_cache(maxsize=4)
def docs_page(limits: Limits) -> Asset:
    """The page of a service with these limits.

    >>> docs_page(Limits()).media_type
    'text/html'
    """
    document = openapi.document(limits)
    found = [
        (operation, method, path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    parts, contents = list[str](), list[str]()
    for tag in document["tags"]:
        mine = [each for each in found if tag["name"] in each[0]["tags"]]
        links = "".join(
            f'<li><a href="#{escape(operation["operationId"])}"><code>{method.upper()} {escape(path)}</code></a> '
            f"{escape(operation['summary'])}</li>"
            for operation, method, path in mine
        )
        contents.append(
            f"<h3>{escape(tag['name'].capitalize())}</h3><p>{escape(tag['description'])}</p><ul>{links}</ul>"
        )
        parts += [_operation(*each) for each in mine]
    schemas = document["components"]["schemas"]
    page = _PAGE.format(
        version=escape(document["info"]["version"]),
        description=escape(document["info"]["description"]),
        contents="".join(contents),
        operations="\n".join(parts),
        types="\n".join(_type(name, schemas[name]) for name in sorted(schemas)),
    )
    return make_asset(page, "text/html")


def _operation(operation: dict[str, Any], method: str, path: str) -> str:
    name = escape(operation["operationId"])
    lines = [
        f'<section class="inner" id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title">{escape(operation["summary"])}</h2>',
        f"<p><code>{method.upper()} {escape(path)}</code></p>",
    ]
    if parameters := operation.get("parameters"):
        rows = [
            (
                each["name"] + ("" if each["required"] else ", if wanted"),
                _kind(each["schema"]),
                escape(each["description"]),
            )
            for each in parameters
        ]
        lines.append(_table(("parameter", "type", "what it is"), rows))
    for media in operation.get("requestBody", {}).get("content", {}).values():
        lines.append(f"<p>Body: {_kind(media['schema'])}</p>")
        for words, example in media.get("examples", {}).items():
            body, where = json.dumps(example["value"]), f"http://127.0.0.1:8377{path}"
            command = f"curl -X {method.upper()} {where} \\\n  -H 'content-type: application/json' -d '{body}'"
            lines.append(f"<p>{escape(words.capitalize())}:</p>{_code(command)}")
    rows = []
    for status, answer in operation["responses"].items():
        kinds = [_kind(media["schema"]) for media in answer.get("content", {}).values()]
        rows.append((status, ", ".join(kinds), escape(answer["description"])))
    lines.append(_table(("status", "answer", "when"), rows))
    for media in operation["responses"].get("200", {}).get("content", {}).values():
        lines += [
            f"<p>Answer, {escape(words)}:</p>{_code(json.dumps(example['value'], indent=2))}"
            for words, example in media.get("examples", {}).items()
        ]
    return "\n".join([*lines, "</section>"])


def _type(name: str, schema: dict[str, Any]) -> str:
    lines = [f'<h3 id="type-{escape(name)}">{escape(name)}</h3>', f"<p>{escape(schema.get('description', ''))}</p>"]
    required = set(schema.get("required", ()))
    rows = [
        (field + ("" if field in required else ", if wanted"), _kind(each), escape(each.get("description", "")))
        for field, each in schema.get("properties", {}).items()
    ]
    return "\n".join([*lines, _table(("field", "type", "what it is"), rows)] if rows else lines)


def _kind(schema: dict[str, Any]) -> str:
    """A type in words, as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#type-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return escape(", ".join(json.dumps(each) for each in schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    low, high = schema.get("minimum"), schema.get("maximum")
    limits = f" from {low:,} to {high:,}" if low is not None and high is not None else ""
    kind = schema.get("type", "anything")
    return escape(f"{kind if isinstance(kind, str) else ' or '.join(kind)}{limits}")


def _table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row"><code>{escape(row[0])}</code></th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return f'<div class="scroller"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _code(text: str) -> str:
    return f'<div class="command"><pre><code>{escape(text)}</code></pre></div>'
