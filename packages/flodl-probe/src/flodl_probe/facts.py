"""What was read off one box, as plain values: the checks see nothing else. Unknown is None, never a guess."""

from __future__ import annotations

import msgspec

from flodl_probe.question import Question


class Gpu(msgspec.Struct, omit_defaults=False):
    """As `devices --json` lists it, and how it is."""

    index: int
    vendor: str = "nvidia"
    uuid: str | None = None
    pci: str | None = None
    name: str | None = None
    arch: str | None = None
    memory_bytes: int | None = None
    used_bytes: int | None = None
    ecc_uncorrected: int | None = None  # since the driver was loaded
    remap_pending: bool | None = None  # rows of bad memory wait for a reset
    throttle: list[str] = []  # reasons in words, only those that are trouble
    mig: bool | None = None

    def label(self) -> str:
        return self.name or f"{self.vendor} GPU {self.index}"


class GpuProcess(msgspec.Struct):
    gpu: str  # its UUID
    pid: int
    name: str = ""
    used_bytes: int | None = None


class BusCard(msgspec.Struct):
    """A display or compute device on the PCI bus, whatever drivers are there."""

    pci: str
    vendor: str
    driver: str | None = None  # the kernel module bound to it


class Driver(msgspec.Struct):
    """NVIDIA's driver and the CUDA driver library, which is what torch asks."""

    version: str | None = None
    cuda: str | None = None  # the newest CUDA it runs, "12.8"
    cuda_devices: int | None = None  # cuDeviceGetCount; None: libcuda is not there
    cuda_error: str = ""


class TorchBuild(msgspec.Struct):
    """A torch wheel by its metadata."""

    version: str
    site: str  # the folder it stands in
    source: str = "environment"  # or "libtorch"
    cuda: str | None = None
    hip: str | None = None
    archs: list[str] | None = None  # tokens it was compiled for: sm_90, compute_90, gfx942
    nccl: str | None = None  # the version its metadata requires
    python_tag: str | None = None  # cp311
    glibc: str | None = None  # "2.28": the oldest it runs on


class Libtorch(msgspec.Struct):
    """A libtorch variant; `why` says what is wrong with it."""

    path: str
    info: dict[str, str] = {}
    valid_dir: bool = False
    why: str = ""


class NcclLibrary(msgspec.Struct):
    """One libnccl and why it would be loaded; the first of several is the one that is."""

    path: str
    source: str  # LD_PRELOAD | libtorch | torch | LD_LIBRARY_PATH | system
    version: str | None = None
    why: str = ""  # why it has no version


class Box(msgspec.Struct):
    """The system."""

    system: str = "Linux"
    name: str = ""  # of the distribution
    manager: str = ""  # apt, dnf, …; "" unknown
    container: str = ""  # docker, podman, …; "" none
    cores: int | None = None
    python: str = ""
    glibc: str | None = None
    shm_bytes: int | None = None
    files: int | None = None  # RLIMIT_NOFILE, soft; None: unlimited
    files_hard: int | None = None
    locked_bytes: int | None = None  # RLIMIT_MEMLOCK, soft; None: unlimited
    infiniband: list[str] = []
    root: bool = False
    shell_reads: str = ""  # a tool that only the login shell's PATH has


class DataPath(msgspec.Struct):
    path: str
    declared: bool = True
    exists: bool = False
    readable: bool = False
    fs_type: str | None = None
    free_bytes: int | None = None
    empty: bool = False
    skipped: bool = False
    hangs: bool = False


class Interface(msgspec.Struct):
    name: str
    up: bool = True
    mtu: int | None = None
    addresses: list[str] = []  # with prefix: 10.0.0.1/24, fe80::1/64


class Road(msgspec.Struct):
    """The way to the controller's port.

    `answer`: probe (the asking probe's own listener), window (a run), other (another program), silent, refused,
    timeout, route, name, loopback, ssh (the forward failed), failed.
    """

    address: str  # as configured, host:port
    kind: str = "direct"  # direct | ssh | tunnel
    answer: str = "refused"
    text: str = ""
    resolved: list[str] = []
    local_address: str | None = None
    interface: str | None = None
    path_mtu: int | None = None
    bulk: bool | None = None  # 256 KiB went through; None: not tried
    clock_offset: float | None = None  # seconds the controller's clock is ahead
    clock_error: float = 0.0
    took: float | None = None  # seconds


class PortUse(msgspec.Struct):
    port: int
    holder: str | None = None  # None: free
    flodl: bool = False  # a run is served there


class Docker(msgspec.Struct):
    """`engine` is the version that answered; `compose` and `toolkit`: NVIDIA's container toolkit is there."""

    engine: str | None = None
    why: str = ""
    compose: bool = False
    toolkit: bool = False


class DeepDevice(msgspec.Struct):
    index: int
    name: str = ""
    good: bool = False
    text: str = ""


class Deep(msgspec.Struct):
    """What torch itself said, in a process of its own."""

    version: str | None = None
    devices: list[DeepDevice] = []
    nccl: str | None = None
    nccl_path: str | None = None  # the file really loaded
    archs: list[str] = []
    reduce: str = ""  # "" = good
    failure: str = ""  # it did not get that far


class Facts(msgspec.Struct):
    """`hung` lists what gave no answer in its time."""

    asked: Question = msgspec.field(default_factory=Question)
    host: str = ""
    box: Box = msgspec.field(default_factory=Box)
    gpus: list[Gpu] = []
    gpu_notes: list[str] = []
    processes: list[GpuProcess] = []
    cards: list[BusCard] = []
    driver: Driver = msgspec.field(default_factory=Driver)
    torch: TorchBuild | None = None
    libtorch: Libtorch | None = None
    nccl: list[NcclLibrary] = []
    tools: dict[str, str | None] = {}
    packages: dict[str, str] = {}  # flodl's, installed beside this one
    project: str | None = None  # the folder, when it exists
    manifest_hash: str | None = None  # "" = none there
    data: DataPath | None = None
    interfaces: list[Interface] = []
    own_addresses: list[str] | None = None  # what this box's own name resolves to
    road: Road | None = None
    ports: list[PortUse] = []
    docker: Docker | None = None
    deep: Deep | None = None
