"""AMD's topology as sysfs shows it, from trees that real boxes and broken ones would have."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl_probe import kfd

CPU = {"cpu_cores_count": 32, "simd_count": 0, "gfx_target_version": 0}
MI300 = {
    "cpu_cores_count": 0,
    "simd_count": 1216,
    "gfx_target_version": 90402,
    "unique_id": 0x1122334455667788,
    "location_id": 0xC100,
    "domain": 2,
}


def topology(root: Path, *nodes: dict[str, int], memory: int = 0, name: str = "") -> Path:
    for number, facts in enumerate(nodes):
        node = root / str(number)
        node.mkdir(parents=True)
        (node / "properties").write_text("".join(f"{key} {value}\n" for key, value in facts.items()))
        (node / "name").write_text(name + "\n")
        if memory:
            (node / "mem_banks" / "0").mkdir(parents=True)
            (node / "mem_banks" / "0" / "properties").write_text(f"heap_type 1\nsize_in_bytes {memory}\nflags 0\n")
            (node / "mem_banks" / "1").mkdir()
            (node / "mem_banks" / "1" / "properties").write_text("heap_type 0\nsize_in_bytes 99\n")
    return root


@pytest.fixture
def door(tmp_path: Path) -> Path:
    path = tmp_path / "kfd"
    path.touch()
    return path


def test_gpus_are_listed_and_processors_are_not(tmp_path: Path, door: Path) -> None:
    root = topology(tmp_path / "nodes", CPU, MI300, MI300, memory=192 << 30, name="ip discovery")
    devices, notes = kfd.query(root, door)
    assert notes == []
    assert [device.index for device in devices] == [0, 1]
    assert devices[0].as_dict() == {
        "index": 0,
        "uuid": "GPU-1122334455667788",
        "pci": "0002:c1:00.0",
        "name": "ip discovery",
        "arch": "gfx942",
        "memory_bytes": 192 << 30,
        "vendor": "amd",
    }


@pytest.mark.parametrize(
    ("version", "arch"),
    [(90010, "gfx90a"), (100300, "gfx1030"), (110501, "gfx1151"), (90402, "gfx942"), (0, None), (-1, None)],
)
def test_the_architecture_is_spelled_as_compilers_do(version: int, arch: str | None) -> None:
    assert kfd._arch(version) == arch


def test_an_apu_is_a_gpu_and_shares_memory(tmp_path: Path, door: Path) -> None:
    root = topology(tmp_path / "nodes", {**CPU, "simd_count": 80, "gfx_target_version": 110501})
    devices, _ = kfd.query(root, door)
    assert (devices[0].arch, devices[0].memory_bytes, devices[0].uuid, devices[0].pci) == ("gfx1151", None, None, None)


def test_a_box_without_the_driver_has_nothing_to_say(tmp_path: Path) -> None:
    assert kfd.query(tmp_path / "none", tmp_path / "kfd") == ([], [])


def test_a_closed_door_is_said(tmp_path: Path) -> None:
    devices, notes = kfd.query(topology(tmp_path / "nodes", MI300), tmp_path / "no-kfd")
    assert len(devices) == 1
    assert "render and video" in notes[0]


def test_nonsense_in_the_tree_is_survived(tmp_path: Path, door: Path) -> None:
    root = topology(tmp_path / "nodes", CPU, MI300)
    (root / "7").mkdir()
    (root / "x").mkdir()
    (root / "8").mkdir()
    (root / "8" / "properties").write_bytes(b"\xff\xfe\x00 simd_count many\nsimd_count\nsimd_count 1 2\n")
    devices, notes = kfd.query(root, door)
    assert [device.index for device in devices] == [0]
    assert len(notes) == 1
    assert "node 7" in notes[0]
