"""Who may read, and which path means what. Pure.

No web page may read a run through its visitor's browser, except the run's own. Three walls:

- What a browser marks as coming from another site (`Origin`, `Sec-Fetch-Site`) is refused.
- Browsers mark nothing when a page's own name has been turned to this box's address (DNS rebinding). So a browser's
  request must name this box: by a number, or by a name that is known to be this box's. What tells a browser is
  `Accept-Encoding`, which no page can remove or change; curl and `fdl status` send none and may use any name.
- A `POST` must name this box in any case and never comes from a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

DOCUMENTS = ("/", "/state.json", "/events", "/history.json", "/metrics")
READ = ("GET", "HEAD")
_SAME = ("same-origin", "none")  # none: typed, or from a bookmark


def allowed(path: str, *, operator: bool = True) -> tuple[str, ...] | None:
    """The methods of a path; None where there is nothing. `operator`: the run's own port, which has the switch."""
    if path == "/start" and operator:
        return ("POST",)
    return READ if path in DOCUMENTS else None


def names(*, operator: bool = True) -> str:
    """For whoever asked for something else."""
    return ", ".join([*DOCUMENTS, *(["/start"] if operator else [])])


def refusal(method: str, headers: Mapping[str, str], is_own_name: Callable[[str], bool]) -> str:
    """Why this request is refused (403); "" when it may be answered. Header names in lower case."""
    host = headers.get("host", "")
    own = is_own_name(host_of(host))
    if method == "POST":
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return "web pages may neither read nor fire a run"
        return "" if own else "the Host header names another box"
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in _SAME and not _typed(headers):
        return "web pages may neither read nor fire a run"
    if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
        return "web pages may neither read nor fire a run"
    if not own and (site is not None or origin is not None or by_browser(headers)):
        return "a browser has to name this box by its address or its own name, so that no other page's name leads here"
    return ""


def by_browser(headers: Mapping[str, str]) -> bool:
    return headers.get("accept-encoding", "identity").strip().lower() not in ("identity", "")


def _typed(headers: Mapping[str, str]) -> bool:
    """A link on another site was followed: the visitor sees the page, that site does not."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def wants_page(headers: Mapping[str, str]) -> bool:
    """True for a browser's `GET /`; curl and `fdl status` get the state."""
    accepted = headers.get("accept", "").lower()
    html, json = accepted.find("text/html"), accepted.find("application/json")
    return html >= 0 and (json < 0 or html < json)


def host_of(header: str) -> str:
    """The Host header without its port, IPv6 without brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header
