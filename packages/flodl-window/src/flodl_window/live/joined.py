"""The page's files joined into one document. A page that a browser fetches in pieces stays for ever as it is when one
of them does not arrive; a document is there whole or not at all. The report is joined from the same files.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

PAGE = Path(__file__).parent / "page"
_PLOT = PAGE / "vendor" / "uplot"


def script(*modules: Path) -> str:
    """uPlot and these modules, in an order in which none needs a later one, as one script."""
    joined = "\n".join(re.sub(r"^import .*$", "", _text(path), flags=re.M) for path in modules)
    own = '(() => {\n"use strict";\n' + re.sub(r"^export ", "", joined, flags=re.M) + "\n})();"
    plot = _text(_PLOT / "uPlot.iife.min.js")
    return f"{plot}\n{own}".replace("</script", "<\\/script").replace("\r", "")


def style(*more: Path) -> str:
    """uPlot's sheet, the page's and `more` as one; the mark lies in it."""
    sheets = "\n".join(_text(path) for path in (_PLOT / "uPlot.min.css", PAGE / "page.css", *more))
    return sheets.replace('url("mark.svg")', f'url("{mark()}")').replace("\r", "")


def mark() -> str:
    """The mark as an address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode((PAGE / 'mark.svg').read_bytes()).decode()}"


def source(text: str) -> str:
    """How a policy names this script or sheet: by its hash, so that nothing else is taken for it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
