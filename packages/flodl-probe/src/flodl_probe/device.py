"""One GPU as the inventory lists it."""

from __future__ import annotations

NVIDIA = "nvidia"
AMD = "amd"


class Device:
    """`index` is the physical one, in PCI order within its vendor; what the box does not tell is None.

    `uuid` as the vendor spells it ("GPU-…"), `pci` "0000:01:00.0", `arch` "sm90" or "gfx942", memory of the whole card.
    """

    __slots__ = ("arch", "index", "memory_bytes", "name", "pci", "uuid", "vendor")

    def __init__(
        self,
        index: int,
        vendor: str,
        *,
        uuid: str | None = None,
        pci: str | None = None,
        name: str | None = None,
        arch: str | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self.index = index
        self.vendor = vendor
        self.uuid = uuid
        self.pci = pci
        self.name = name
        self.arch = arch
        self.memory_bytes = memory_bytes

    def as_dict(self) -> dict[str, object]:
        return {
            "index": self.index,
            "uuid": self.uuid,
            "pci": self.pci,
            "name": self.name,
            "arch": self.arch,
            "memory_bytes": self.memory_bytes,
            "vendor": self.vendor,
        }

    def label(self) -> str:
        """For people: `NAME (NGB, arch)`."""
        size = None if self.memory_bytes is None else f"{round(self.memory_bytes / (1 << 30))}GB"
        details = ", ".join(part for part in (size, self.arch) if part)
        return (self.name or f"{self.vendor} GPU {self.index}") + (f" ({details})" if details else "")


def pci_address(text: str) -> str | None:
    """A PCI bus id as sysfs spells it ("0000:01:00.0"), whatever the width of the domain; None when it is none."""
    domain, _, rest = text.strip().lower().partition(":")
    bus, _, slot = rest.partition(":")
    card, _, function = slot.partition(".")
    try:
        return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(card, 16):02x}.{int(function, 16):x}"
    except ValueError:
        return None
