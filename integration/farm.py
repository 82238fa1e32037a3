"""A farm on the hosts of a lab: desk with a system's sshd that reads /etc/ssh, and commands typed as they were printed.

A host of a lab has mounts of its own, so desk gets an /etc/ssh and a /run that nothing else sees.
"""

from __future__ import annotations

import configparser
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml
from integration.processes import MARK, Process, among
from integration.project import BIN, RANKS
from integration.running import Running
from integration.until import until
from tools.lab import Lab
from tools.lab.host import sh

PORT = 2222
MANIFEST = {"commands": {"train": {"run": "python train.py --epochs 2", "cluster": True}}}


class Desk:
    """The controller of a farm, with a project in its home."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.home = lab.home("desk")
        self.folder = self.home / "digits"
        self.runs: list[Running] = []
        self._become_a_system()
        self._idle = {host: set(lab.pids(host)) for host in lab.hosts}

    def _become_a_system(self) -> None:
        """sshd as a distribution starts it, in place of the lab's."""
        etc, run = self.home / "etc-ssh", self.home / "run"
        (etc / "sshd_config.d").mkdir(parents=True)
        (run / "sshd").mkdir(parents=True)
        (etc / "sshd_config").write_text(
            "Include /etc/ssh/sshd_config.d/*.conf\n"
            f"HostKey {self.home / 'hostkey'}\n"
            "PermitRootLogin prohibit-password\n"
            "Subsystem sftp internal-sftp\n"
        )
        for source, target in ((etc, "/etc/ssh"), (run, "/run")):
            sh(*self.lab.hosts["desk"].command("mount", "--bind", source, target))
        sh("kill", (self.home / "sshd-22.pid").read_text().strip())
        until(lambda: not self._answers(22), 10, "the lab's own sshd goes on")
        sh(*self.lab.hosts["desk"].command("/usr/sbin/sshd"))
        until(lambda: self._answers(22), 10, "desk's sshd does not answer")

    def _answers(self, port: int) -> bool:
        probe = f"exec 3<>/dev/tcp/127.0.0.1/{port} && head -c 4 <&3"
        return self.lab.run("desk", "bash", "-c", probe).stdout == "SSH-"

    def new_project(self) -> None:
        """A bare one, with a rank that needs no torch; what earlier tests left is gone."""
        for path in (self.folder, self.home / ".flodl"):
            sh("rm", "-rf", path)
        self.folder.mkdir()
        (self.folder / "fdl.yml").write_text(json.dumps(MANIFEST))
        (self.folder / "train.py").write_text((RANKS / "plain_rank.py").read_text())
        sh("sh", "-c", f"rm -f {self.home}/etc-ssh/sshd_config.d/*")
        keys = self.home / ".ssh/authorized_keys"
        keys.write_text("".join(line for line in keys.read_text().splitlines(True) if "restrict" not in line))

    def environment(self) -> dict[str, str]:
        return {MARK: "lab", "PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin"}

    def fdl(self, *words: str, within: float = 60.0) -> subprocess.CompletedProcess[str]:
        return self.lab.run(
            "desk", BIN / "fdl", *words, cwd=self.folder, env=self.environment(), timeout=within,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip

    def config(self, *words: str) -> dict[str, Any]:
        """`fdl join-config lab … --json`, which must not fail."""
        done = self.fdl("join-config", "lab", "--json", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def set_up(self, door: str, *words: str) -> dict[str, Any]:
        """The wizard, and after it the steps on the controller that it printed, to the letter, up to the self-test."""
        report = self.config("--door", door, "--controller", f"root@desk:{PORT}", "--yes", *words)
        before = self._listener()
        for step in report["steps"]:
            if "--test" in step["commands"][0] or step["where"] != "controller":
                break
            for line in step["commands"]:
                self.type(line)
        self._reloaded(before)
        return report

    def type(self, line: str) -> str:
        done = self.lab.run("desk", "bash", "-c", line, cwd=self.folder, env=self.environment(), timeout=60)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def reload(self) -> None:
        """A changed drop-in taken up, as the printed step has it."""
        before = self._listener()
        self.type("sshd -t && kill -HUP $(cat /run/sshd.pid)")
        self._reloaded(before)

    def _listener(self) -> str:
        """The socket on which sshd listens: a reload makes another."""
        rows = (line.split() for line in self.lab.run("desk", "cat", "/proc/net/tcp").stdout.splitlines()[1:])
        return next((row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{22:04X}")), "")

    def _reloaded(self, before: str) -> None:
        until(lambda: self._listener() not in ("", before), 10, "sshd has not taken its configuration")
        until(lambda: self._answers(PORT), 10, "the door does not answer")

    def tried(self) -> tuple[int, dict[str, str]]:
        """The self-test's exit code and what it says of each."""
        done = self.fdl("join-config", "lab", "--test", "--json")
        document = json.loads(done.stdout)
        print(
            done.returncode,
            *(f"{each['name']}: {each['state']} {each['text']}" for each in document["tried"]),
            sep="\n  ",
        )
        return done.returncode, {each["name"]: each["state"] for each in document["tried"]}

    # workers

    def start(self, host: str, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Running:
        process = self.lab.popen(
            host,
            *(word if word != "fdl" else BIN / "fdl" for word in words),
            cwd=cwd or self.folder,
            env={**self.environment(), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
            start_new_session=True,
        )
        typed = Running(process, cwd or self.folder, lambda: self.on(host))
        self.runs.append(typed)
        return typed

    def equip(self, report: dict[str, Any], host: str, *words: str) -> Running:
        """The printed steps for a worker, to the letter but for where `fdl` lies, the devices of a box without a GPU,
        and `words`.
        """
        (step,) = (each for each in report["steps"] if each["title"].startswith("equip each worker"))
        *copying, last = step["commands"]
        for line in copying:
            self.type(line.replace("WORKER", host))
        assert "cd lab && fdl join" in last
        devices = () if "--devices" in words else ("--devices", "cpu:1")
        return self.start(host, "fdl", "join", *devices, *words, cwd=self.lab.home(host) / "lab")

    def boot(self, host: str) -> Running:
        """`host` becomes an instance with the farm's user-data: files written, orders run by a shell, unit started.

        Its /srv, /opt and units are its own; flodl lies in its image. Its user has root's number, because no other may
        read this machine's Python, and its box has no systemd, so the unit's own words are taken from it.
        """
        data = yaml.safe_load((self.folder / ".fdl/lab/cloud-init.yml").read_text())
        passwd = self.lab.home(host) / "passwd"
        passwd.write_text("flodl:x:0:0::/srv/flodl:/bin/sh\n" + passwd.read_text())
        inside = self.lab.hosts[host].command
        for folder in ("/srv", "/opt", "/etc/systemd/system"):
            sh(*inside("mount", "-t", "tmpfs", "none", folder))
        sh(*inside("ln", "-s", BIN.parent, "/opt/flodl"))
        for each in data["write_files"]:
            order = 'mkdir -p "${1%/*}" && cat > "$1" && chmod $2 "$1"'
            words = ["sh", "-c", order, "sh", each["path"], each["permissions"]]
            subprocess.run(inside(*words), input=each["content"], text=True, check=True)
        orders = "\n".join(["systemctl() { echo systemctl $*; }", *data["runcmd"]])
        done = self.lab.run(host, "sh", "-e", "-c", orders)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout.splitlines()[-1] == "systemctl enable --now flodl-join-lab.service"
        unit = configparser.ConfigParser(comment_prefixes=("#",), interpolation=None)
        unit.read_string(self.lab.run(host, "cat", "/etc/systemd/system/flodl-join-lab.service").stdout)
        service = unit["Service"]
        enter = f'cd {service["WorkingDirectory"]} && exec "$@"'
        words = ["sh", "-c", enter, "sh", *service["ExecStart"].split(), "--devices", "cpu:1"]
        return self.start(host, *words, cwd=self.lab.home(host), env={"HOME": "/srv/flodl"})

    def on(self, host: str) -> list[Process]:
        return among([pid for pid in self.lab.pids(host) if pid not in self._idle[host]])

    def end(self) -> None:
        for run in self.runs:
            run.end()
        self.runs.clear()
