"""JSON Schema by name, and the module's own command line."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from flodl_wire import __main__ as command
from flodl_wire import exits, faults, schemas
from flodl_wire.config import Cluster


@pytest.mark.parametrize("name", schemas.SCHEMAS)
def test_every_document_has_a_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["schema", name]) == exits.DONE
    printed = json.loads(capsys.readouterr().out)
    assert printed["$schema"].startswith("https://json-schema.org/")
    assert "$ref" in printed or "anyOf" in printed


def test_a_schema_lists_every_key_and_allows_no_other_in_a_config() -> None:
    cluster = schemas.schema("cluster")["$defs"]["Cluster"]
    assert set(cluster["properties"]) == set(Cluster.__struct_fields__)
    assert cluster["additionalProperties"] is False
    assert cluster["required"] == ["controller"]


def test_without_a_name_the_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["schema"]) == exits.DONE
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(schemas.SCHEMAS)


def test_an_unknown_name_is_a_usage_error_that_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.guarded("x", lambda: command.main(["schema", "resalt"])) == exits.USAGE
    assert capsys.readouterr() == (
        "",
        "x: cannot print a schema of 'resalt': there is none of that name\nfix: did you mean result?\n",
    )
    with pytest.raises(faults.Refused) as caught:
        schemas.schema("zzz")
    assert caught.value.fix.startswith("names: cluster, launch-config, agent-spec")


def test_vectors_are_written_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["vectors", "--write", str(tmp_path)]) == exits.DONE
    assert "preface.json" in capsys.readouterr().out
    assert command.main(["vectors", str(tmp_path)]) == exits.DONE
    assert capsys.readouterr().out == f"{tmp_path}: every vector holds\n"
    (tmp_path / "frames.json").write_text("[]", encoding="utf-8")
    with pytest.raises(faults.Broken, match=r"cannot stand by frames\.json: the code here makes other bytes"):
        command.main(["vectors", str(tmp_path)])


def test_schemas_are_read_by_other_tools_as_plain_json() -> None:
    for name in schemas.SCHEMAS:
        assert msgspec.json.decode(msgspec.json.encode(schemas.schema(name)))
