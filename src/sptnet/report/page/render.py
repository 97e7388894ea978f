"""Rendering of the page: template, style sheet and script in one file, with a policy that forbids connections."""

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from sptnet.runtime.text import printable

SCRIPTS = (
    *("dom.js", "store.js", "acts.js", "move.js", "lightbox.js", "gallery.js", "members.js", "cards.js", "lists.js"),
    *("kept.js", "edits.js", "next.js", "map_view.js", "map.js", "attention.js", "start.js"),
)
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def render(**content: Any) -> str:
    """Render the page. Texts in `content` are escaped; `data` and `pictures` become JSON."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_asset),
    )
    environment.filters["printable"] = printable
    environment.filters["json"] = safe_json
    script = script_text()
    return environment.get_template("template.html").render(
        script=Markup(script), style=Markup(_asset("report.css")), policy=policy(script), **content
    )


def script_text() -> str:
    """Return all scripts as one, in a function scope of its own."""
    parts = "\n".join(_asset(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def policy(script: str) -> str:
    """Return a content security policy: pictures as data URIs, this script only, no connections."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",
        "script-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def safe_json(value: Any) -> Markup:
    """Return JSON for a script element: characters that could end the element, and lone surrogates, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(_UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text))


def _asset(name: str) -> str:
    return files("sptnet.report.page").joinpath("assets", name).read_text(encoding="utf-8")
