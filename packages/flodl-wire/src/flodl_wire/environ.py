"""Every environment variable the project reads or sets, by name, each written once.

The names are the users' contract (they stand in ``docs/env.md``). Names under ``FLODL_INTERNAL_`` belong to the tools
alone; ``tools/check.py`` refuses one spelled out anywhere but here.
"""

from __future__ import annotations

INTERNAL_PREFIX = "FLODL_INTERNAL_"

# Roles: who a process is in a run. Values are hex JSON, see blob.py.
FULL_CLUSTER_JSON = "FLODL_INTERNAL_FULL_CLUSTER_JSON"  # whole topology: this process becomes the launcher
AGENT_JSON = "FLODL_INTERNAL_AGENT_JSON"  # an agent's spec: this process becomes an agent
RELAY_JSON = "FLODL_INTERNAL_RELAY_JSON"  # a relay's spec: this process becomes a relay
CLUSTER_JSON = "FLODL_INTERNAL_CLUSTER_JSON"  # a rank's envelope
LOCAL_RANK = "FLODL_INTERNAL_LOCAL_RANK"  # a rank's index inside its host, decimal

# What fdl tells the tools it runs.
CONFIG_JSON = "FLODL_INTERNAL_CONFIG_JSON"  # resolved config blocks
FDL_CMD = "FLODL_INTERNAL_FDL_CMD"  # the command's name in fdl.yml
HOST_USER = "FLODL_INTERNAL_HOST_USER"  # the controller's OS user: default ssh login
CLUSTER_EXTRA_HOSTS = "FLODL_INTERNAL_CLUSTER_EXTRA_HOSTS"  # "name:ip name:ip", for docker --add-host
MODE = "FLODL_INTERNAL_MODE"  # the world's mode, from --mode or the command
MODEL_SIG_PROBE = "FLODL_INTERNAL_MODEL_SIG_PROBE"  # a training script says what its model and data are, and exits
FDL_ENV = "FDL_ENV"  # the overlay

# What a user may set.
HOST_NAME = "FLODL_HOST_NAME"  # which host am I, when the OS name will not do
TESTING_CLUSTER_JSON = "FLODL_TESTING_CLUSTER_JSON"
NET_TIMEOUT_SCALE = "FLODL_NET_TIMEOUT_SCALE"
VERBOSITY = "FLODL_VERBOSITY"
DATA_PATH = "FLODL_DATA_PATH"  # this host's data root, for scripts without flodl
FORKSERVER = "FLODL_FORKSERVER"  # 0: every rank imports torch for itself
TORCH_INDEX = "FLODL_TORCH_INDEX"  # package indexes of torch, one a build below this address
RESUME = "FLODL_RESUME"  # the checkpoint to go on from: auto, latest, a run's id, a path; never: begin anew
DASHBOARD_BIND = "FLODL_DASHBOARD_BIND"  # address and port of the live page alone
RUN_DIR = "FLODL_RUN_DIR"  # where solo runs and launchers put runs/ (default: the current directory)

# What a `build:` line finds set.
BUILD_SITE = "FLODL_BUILD_SITE"
BUILD_HOST = "FLODL_BUILD_HOST"
BUILD_ARCH = "FLODL_BUILD_ARCH"

ROLE_VARIABLES = (FULL_CLUSTER_JSON, AGENT_JSON, RELAY_JSON, CLUSTER_JSON, LOCAL_RANK)

VISIBILITY_MASKS = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)


def is_reserved(name: str) -> bool:
    """True when a user's ``env:`` block must not set `name`: it would overrule device mapping, identity or the salt."""
    return name.startswith(INTERNAL_PREFIX) or name in VISIBILITY_MASKS or name in (HOST_NAME, FDL_ENV)


def is_valid_name(name: str) -> bool:
    """True when a shell would take `name` as a variable's name."""
    return name.isascii() and name.isidentifier()  # not by `re`: its import alone is felt in the hot commands
