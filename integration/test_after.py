"""What is left of a run: a bundle without a secret, a report that a browser shows from a file with no network."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from integration.account import why
from integration.browser import chromium
from integration.cluster import Cluster
from integration.conftest import Make
from integration.project import rank_command

SECRETS = {
    "DB_PASSWORD": "correct horse battery",
    "WANDB_API_KEY": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUv",
    "SERVICE_URL": "https://bob:open-sesame@db.local/x",
    "ODDLY_SECRET": "kartoffel",
}
PRINTS = """
import os, sys
for name in sys.argv[1].split(","):
    print("the rank says", os.environ[name])
    print(f"{name}={os.environ[name]}", file=sys.stderr)
print("arguments", sys.argv[2:], "and", sys.argv[3])
"""


def test_a_bundle_of_a_run_with_secrets_in_environment_arguments_config_and_output_holds_none(
    project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    words = ",".join([*SECRETS, "CONFIGURED_PASSPHRASE"])
    run_line = f"python prints.py {words} --api-key trombone-7 --password=violin-8 --lr -1"
    made = project(train={"run": run_line, "mode": "torch", "env": {"CONFIGURED_PASSPHRASE": "swordfish-9"}})
    (made.folder / "prints.py").write_text(PRINTS)
    run = made.start("@one", "train")
    run.done()
    assert "kartoffel" in "\n".join(run.out), "the terminal shows what was printed"
    target = tmp_path / "help.tar.gz"
    for name in SECRETS:
        monkeypatch.delenv(name)  # another shell, later
    packed = made.fdl("why", "--bundle", str(target))
    assert packed.returncode == 0 and "Taken out" in packed.stdout, packed
    with tarfile.open(target) as tar:
        files = {member.name: tar.extractfile(member).read().decode() for member in tar}  # type: ignore[union-attr]
    assert any(name.endswith("/config.json") for name in files) and any("/log/" in name for name in files), list(files)
    plain = (
        "correct horse",
        "0a1b2c3d4e5f",
        "AbCdEfGhIj",
        "open-sesame",
        "kartoffel",
        "swordfish",
        "trombone",
        "violin",
    )
    left = [(name, word) for name, text in files.items() for word in plain if word in text]
    assert left == []
    assert any("the rank says ***" in text for text in files.values())
    kept = [path for path in made.folder.glob("runs/*/**/*") if path.is_file() and not path.is_symlink()]
    left = [(path.name, word) for path in kept for word in plain if word in path.read_text(errors="replace")]
    assert left == [], "what the run itself keeps holds none either"


def test_the_report_of_three_hosts_is_shown_from_a_file_with_no_network(cluster: Cluster) -> None:
    cluster.write(
        {"train": {"run": rank_command("plain_rank.py", "--epochs", "6", "--slow", "2:2"), "mode": "cpu_cadence"}}
    )
    run = cluster.start("@cluster", "train")
    run.done()
    report = run.run_folder.resolve() / "report.html"
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        page = context.new_page()
        asked: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn=yes]", timeout=20_000)
        text = page.inner_text("body")
        assert asked == [report.as_uri()] and said == []
        assert page.locator("#charts canvas").count() >= 4 and page.locator("#ranks tbody tr").count() == 3
        for words in ("tower", "attic", "plain_rank.py", "On the fastest rank alone", "accuracy"):
            assert words in text, words
        page.set_viewport_size({"width": 360, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        context.close()
    listed = cluster.fdl("runs", "--json")
    (row,) = json.loads(listed.stdout)["runs"]
    assert (row["end"], row["ranks"], row["name"], row["samples"]) == ("done", 3, "train", 6 * 240), row
    assert why(cluster)["end"] == "done"
