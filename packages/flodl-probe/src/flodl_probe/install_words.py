"""How to install something here, in the words of this box's own package manager."""

from __future__ import annotations

_COMMANDS = {
    "apt": "apt install",
    "dnf": "dnf install",
    "pacman": "pacman -S",
    "zypper": "zypper install",
    "apk": "apk add",
    "brew": "brew install",
}

# The package that holds a tool, where it is not named like it.
_PACKAGES = {
    "ssh": {"apt": "openssh-client", "dnf": "openssh-clients", "*": "openssh"},
    "sshfs": {"dnf": "fuse-sshfs", "*": "sshfs"},
    "docker": {"apt": "docker.io", "dnf": "moby-engine", "*": "docker"},
    "cargo": {"pacman": "rust", "brew": "rust", "*": "cargo"},
}

_BY_HAND = {
    "uv": "pip install uv",
    "nvidia-ctk": "install nvidia-container-toolkit (NVIDIA's own repository has it)",
}


def install(tool: str, manager: str, root: bool = False) -> str:
    """The command line that installs `tool`; `manager` "" when nobody knows which this box has."""
    if tool.startswith("flodl-"):
        return f"pip install {tool}"
    if tool in _BY_HAND:
        return _BY_HAND[tool]
    names = _PACKAGES.get(tool, {})
    package = names.get(manager) or names.get("*", tool)
    command = _COMMANDS.get(manager)
    if command is None:
        return f"install {package} with this system's package manager"
    sudo = "" if root or manager == "brew" else "sudo "
    return f"{sudo}{command} {package}"


def driver_fix(manager: str, root: bool, container: bool) -> str:
    """How to get NVIDIA's driver."""
    if container:
        return "start the container with its GPUs: docker run --gpus all … (compose: deploy.resources.reservations)"
    sudo = "" if root else "sudo "
    return {
        "apt": f"{sudo}ubuntu-drivers install (Debian: {sudo}apt install nvidia-driver), and reboot",
        "dnf": f"{sudo}dnf install akmod-nvidia (RPM Fusion), and reboot",
        "pacman": f"{sudo}pacman -S nvidia, and reboot",
        "zypper": f"{sudo}zypper install nvidia-driver-G06-kmp-default, and reboot",
    }.get(manager, "install NVIDIA's driver for this kernel, and reboot")
