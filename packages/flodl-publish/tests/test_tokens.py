"""The token of a window does not travel unsaid."""

from __future__ import annotations

import pytest
from publish_worlds import World, content, git, write

TOKEN = "0123456789abcdef0123456789abcdef"
FORMS = {
    "yaml": f"cluster:\n  join:\n    token: {TOKEN}\n",
    "quoted": f"cluster: {{join: {{token: '{TOKEN}'}}}}\n",
    "json": f'{{"cluster": {{"join": {{"token" : "{TOKEN}"}}}}}}',
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("by", ["git", "walk"])
def test_an_overlay_with_a_token_stays_behind_and_is_listed(world: World, form: str, by: str) -> None:
    write(world.source, {"train.py": "", "fdl.farm.yml": FORMS[form], "sub/fdl.x.json": FORMS[form], "fdl.yml": ""})
    write(world.source, {"fdl.one.yml": "cluster: {}\n", "notfdl.yml": FORMS[form], "fdl.yml.example": FORMS[form]})
    if by == "git":
        git(world.source, "init", "-q")
    report = world.publish("--bin", "train.py")
    left_out = {each["path"] for each in report["left_out"] if "token" in each["why"]}
    assert left_out == {"fdl.farm.yml", "sub/fdl.x.json"}
    assert {"fdl.one.yml", "notfdl.yml", "fdl.yml.example", "fdl.yml"} < set(content(world.tree))
    assert not left_out & set(content(world.tree))
    assert report["warnings"] == []


def test_one_that_git_tracks_travels_as_git_ships_it_with_a_warning_and_so_does_the_manifest_of_a_project(
    world: World,
) -> None:
    write(world.source, {"train.py": "", "fdl.farm.yml": FORMS["yaml"], "fdl.yml": FORMS["json"]})
    git(world.source, "init", "-q")
    git(world.source, "add", "fdl.farm.yml")
    for _ in range(3):  # the third is told at a glance
        warnings = world.publish("--bin", "train.py")["warnings"]
        assert sorted(each.partition(" ")[0] for each in warnings) == ["fdl.farm.yml", "fdl.yml"]
    assert "git rm --cached" in str(warnings) and TOKEN not in str(warnings)
    assert {"fdl.farm.yml", "fdl.yml"} < set(content(world.tree))


def test_a_token_that_was_published_once_goes_with_the_next_publish_from_server_and_workers(world: World) -> None:
    write(world.source, {"train.py": "", "fdl.farm.yml": "cluster: {}\n"})
    world.publish("--bin", "train.py")
    world.fetch()
    assert "fdl.farm.yml" in content(world.worker / "tree")
    write(world.source, {"fdl.farm.yml": FORMS["yaml"]})
    world.publish("--bin", "train.py")
    world.fetch()
    assert set(content(world.tree)) == set(content(world.worker / "tree")) == {"train.py"}
