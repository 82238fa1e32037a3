"""What a recipe finds in its environment of the libtorch variant that the build is made against."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flodl_wire import libtorch
from flodl_wire.libtorch import Variant


def environment(variant: Variant | None, state: Path, outer: Mapping[str, str]) -> dict[str, str]:
    """To be laid over `outer`. `state`: a folder of this build alone."""
    added = {"FDL_GPU_FEATURE": variant.feature if variant else "", "TORCH_EXTENSIONS_DIR": str(state / "extensions")}
    if variant is None:
        found = libtorch.rocm(outer)
        rest = [part for part in outer.get("LD_LIBRARY_PATH", "").split(":") if part]
        return added | ({"LD_LIBRARY_PATH": ":".join(dict.fromkeys([*found, *rest]))} if found or rest else {})
    added["LIBTORCH_PATH"] = str(variant.folder)
    if variant.cuda_archs and "TORCH_CUDA_ARCH_LIST" not in outer:
        added["TORCH_CUDA_ARCH_LIST"] = variant.cuda_archs
    return added | libtorch.environment(variant, outer)
