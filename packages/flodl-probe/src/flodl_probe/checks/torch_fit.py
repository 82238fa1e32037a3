"""Whether the torch that ranks would import runs on this box and on the devices it offers. By metadata alone."""

from __future__ import annotations

from flodl_probe.checks.devices import offered, offers_gpus
from flodl_probe.device import AMD, NVIDIA
from flodl_probe.facts import Facts
from flodl_probe.finding import Finding, error, ok, warning
from flodl_wire.arch_tokens import runs, tokens

TORCH = "torch"
LIBTORCH = "libtorch"
ARCH = "arch"


def check_libtorch(facts: Facts) -> list[Finding]:
    variant = facts.libtorch
    if variant is None:
        return []
    if not variant.valid_dir:
        return [
            error(
                LIBTORCH,
                f"cannot use the libtorch at {variant.path}",
                variant.why,
                "fdl libtorch download auto, or mend arch: (or --libtorch-path)",
            )
        ]
    tag = variant.info.get("python") or variant.info.get("python_tag") or (facts.torch and facts.torch.python_tag)
    own = "cp" + "".join(facts.box.python.split(".")[:2])
    if facts.torch and facts.torch.source == "libtorch" and tag and tag.startswith("cp") and tag != own:
        return [
            error(
                LIBTORCH,
                f"the libtorch at {variant.path} is for {tag}",
                f"the Python here is {own}",
                "fdl libtorch download auto",
            )
        ]
    return [ok(LIBTORCH, variant.path)]


def check_torch(facts: Facts) -> list[Finding]:
    """The wheel against Python, glibc, the driver and the vendor of the GPUs."""
    torch, box = facts.torch, facts.box
    if facts.asked.docker or facts.asked.role == "controller":
        return []
    if torch is None:
        return [
            warning(
                TORCH,
                "torch is not installed for this Python",
                "ranks that import it would end at once",
                "pip install torch",
            )
        ]
    found = []
    if torch.glibc and box.glibc and _numbers(box.glibc) < _numbers(torch.glibc):
        found.append(
            error(
                TORCH,
                f"torch {torch.version} does not load here",
                f"it needs glibc {torch.glibc}, this system has {box.glibc}",
                "use a newer system, or an older torch",
            )
        )
    vendors = {gpu.vendor for gpu in offered(facts)}
    if NVIDIA in vendors and torch.cuda is None:
        found.append(_blind(torch.version, "NVIDIA", "a build for CUDA: pip install torch (from a CUDA index)"))
    elif AMD in vendors and torch.hip is None:
        found.append(_blind(torch.version, "AMD", "a build for ROCm: pip install torch (from a ROCm index)"))
    newest = facts.driver.cuda
    if NVIDIA in vendors and torch.cuda and newest and _numbers(newest)[0] < _numbers(torch.cuda)[0]:
        found.append(
            error(
                "driver",
                f"the driver runs CUDA up to {newest}",
                f"torch {torch.version} needs CUDA {torch.cuda}",
                f"bring the driver up to date, or use a torch for CUDA {newest}",
            )
        )
    return found or [ok(TORCH, f"torch {torch.version}")]


def _blind(version: str, vendor: str, fix: str) -> Finding:
    why = f"the driver lists {vendor} GPUs, and this build cannot use them"
    return error(TORCH, f"torch {version} sees no GPU here", why, fix)


def check_arch(facts: Facts) -> list[Finding]:
    """Compiled code for each offered card, token by token."""
    compiled = compiled_for(facts)
    if not compiled or facts.asked.docker or not offers_gpus(facts):
        return []
    found = []
    for gpu in offered(facts):
        how = runs(gpu.arch, compiled) if gpu.arch else "native"
        if how == "":
            found.append(
                error(
                    ARCH,
                    f"GPU {gpu.index} ({gpu.label()}, {gpu.arch}) has no code in this torch",
                    f"it was compiled for {' '.join(compiled)}",
                    "use a torch build that covers it, or leave the GPU out of local_devices",
                )
            )
        elif how == "jit":
            newest, needed = facts.driver.cuda, facts.torch.cuda if facts.torch else None
            if newest and needed and _numbers(newest) < _numbers(needed):
                found.append(
                    error(
                        ARCH,
                        f"GPU {gpu.index} ({gpu.arch}) can only run code compiled anew by the driver",
                        f"and the driver (CUDA {newest}) is older than this torch (CUDA {needed})",
                        "bring the driver up to date",
                    )
                )
            else:
                found.append(
                    warning(
                        ARCH,
                        f"GPU {gpu.index} ({gpu.arch}) runs code compiled anew at first use",
                        "its first steps take minutes",
                        "use a torch build that covers it",
                    )
                )
    return found or [ok(ARCH, "every offered GPU has code of its own")]


def compiled_for(facts: Facts) -> list[str]:
    """Tokens of the variant's metadata, else of the wheel; empty when nobody says."""
    info = facts.libtorch.info.get("archs", "") if facts.libtorch and facts.libtorch.valid_dir else ""
    return tokens(info) or list((facts.torch.archs if facts.torch else None) or [])


def archs_match(facts: Facts) -> bool | None:
    """True when every offered card is covered; None when there is nothing to compare."""
    compiled, cards = compiled_for(facts), [gpu.arch for gpu in offered(facts) if gpu.arch]
    return all(runs(arch, compiled) for arch in cards) if compiled and cards else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
