"""Whether a libtorch variant fits the devices that are offered and the Python that will import it, by metadata."""

from __future__ import annotations

import re
from pathlib import Path

from flodl_wire.arch_tokens import runs, tokens
from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer
from flodl_wire.libtorch import Variant

_VERSION = re.compile(r"^version(?:_info)?\s*=\s*(\d+\.\d+\S*)", re.MULTILINE)


def check_devices(variant: Variant | None, offers: list[DeviceOffer]) -> list[str]:
    """Raises Refused when the variant holds code for none of the devices; when it does for some, notes that name the
    others. A variant for the CPU, or one that does not say, gates nothing.
    """
    if variant is None or not variant.feature or not variant.archs:
        return []
    compiled = tokens(variant.archs)
    bare = [offer for offer in offers if offer.kind != "cpu" and offer.arch and not runs(offer.arch, compiled)]
    if not bare:
        return []
    named = ", ".join(f"{offer.index} ({offer.label or offer.kind}, {offer.arch})" for offer in bare)
    covered = ",".join(
        f"cpu:{offer.index}" if offer.kind == "cpu" else str(offer.index) for offer in offers if offer not in bare
    )
    what, why = f"the libtorch variant {variant.name} on device {named}", f"it was compiled for {' '.join(compiled)}"
    cure = "take one that covers it: --libtorch auto"
    if not covered:
        raise Refused("arch-not-covered", f"cannot use {what}", why, cure)
    # a rank there fails at its first step, and the run with it; but whoever offers it may know better than metadata
    return [f"there may be no code in {what}: {why}; offer the others alone, --devices {covered}, or {cure}"]


def check_python(variant: Variant | None, program: list[str]) -> None:
    """Raises Refused when the Python of `program` (a virtual environment's, else ours) cannot import the variant."""
    if variant is not None:
        variant.check_python(_version(Path(program[0])) if program else "")


def _version(program: Path) -> str:
    """Of the virtual environment that `program` is the Python of; "" for any other program."""
    try:
        found = _VERSION.search((program.parent.parent / "pyvenv.cfg").read_text("utf-8", "replace"))
    except OSError:
        return ""
    return found[1] if found and program.name.startswith("python") else ""
