"""The page as one text: template, styles and script in one, and a policy that forbids every connection."""

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sptnet.runtime.text import printable

SCRIPTS = ("dom.js", "store.js", "cards.js", "members.js", "edits.js", "map.js", "gaze.js", "start.js")
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def render(**content: Any) -> str:
    """The whole page. Texts in `content` are escaped; `data` and `pictures` become JSON."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["printable"] = printable
    environment.filters["json"] = safe_json
    script = script_text()
    return environment.from_string(_asset("template.html")).render(
        script=Markup(script), style=Markup(_asset("report.css")), policy=policy(script), **content
    )


def script_text() -> str:
    """All scripts as one, whose names nobody else sees."""
    parts = "\n".join(_asset(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def policy(script: str) -> str:
    """Pictures only from within the page, no other script than this one, and no connection anywhere."""
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
    """JSON that can stand in a script element: nothing in it ends the element, and half characters survive."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(_UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text))


def _asset(name: str) -> str:
    return files("sptnet.report.page").joinpath("assets", name).read_text(encoding="utf-8")
