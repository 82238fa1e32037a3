"""cloud-init user-data: an instance that boots into the farm, with key and token inside. Pure."""

from __future__ import annotations

from flodl_cli.join_config.farm import Farm
from flodl_cli.join_config.unit import HOME, USER, VENV, unit
from flodl_cli.join_config.worker_block import worker_yml
from flodl_cli.join_config.yaml_text import block

HEAD = """\
#cloud-config
# A worker of the flodl farm {label}, written by `fdl join-config {label} --cloud-init`. It holds the farm's private key
# and token: whoever can read an instance's user-data can join. An image that has flodl in {venv} boots faster.
packages:
{packages}
write_files:
"""

FILE = """\
  - path: {path}
    permissions: "{mode}"
    content: |
{content}"""

# One line, one thing; each may run twice. root's files become the user's at the end, since write_files runs before
# there is a user to own them.
COMMANDS = """\
runcmd:
  - id -u {user} >/dev/null 2>&1 || useradd --system --home-dir {home} --shell /usr/sbin/nologin {user}
  - for group in video render; do if getent group $group >/dev/null; then usermod -a -G $group {user}; fi; done
  - test -x {venv}/bin/fdl || python3 -m venv {venv}
  - test -x {venv}/bin/fdl || {venv}/bin/pip install flodl-cli flodl-agent flodl-publish "flodl-planes[torch]"
  - chown -R {user} {home}
  - chmod 700 {home}/.flodl {home}/.flodl/{label}
{more}  - systemctl daemon-reload
  - systemctl enable --now {unit}
"""

DATA = "  - mkdir -p /flodl/data && chown {user} /flodl/data\n"


def cloud_init(farm: Farm, private_key: str) -> str:
    """The whole file. `private_key` as ssh-keygen wrote it."""
    packages = ["openssh-client", "python3-venv", *{"b": ["rsync"], "a": ["sshfs"]}.get(farm.door, [])]
    files = (
        (f"{HOME}/.flodl/{farm.label}/join_key", "0600", private_key),
        (f"{HOME}/{farm.label}/fdl.yml", "0600", worker_yml(farm)),
        (f"/etc/systemd/system/{farm.unit_name}", "0644", unit(farm)),
    )
    text = HEAD.format(label=farm.label, venv=VENV, packages="\n".join(f"  - {name}" for name in packages))
    text += "".join(FILE.format(path=path, mode=mode, content=block(body, 6)) for path, mode, body in files)
    more = DATA.format(user=USER) if farm.door == "a" else ""
    return text + COMMANDS.format(user=USER, home=HOME, venv=VENV, label=farm.label, unit=farm.unit_name, more=more)
