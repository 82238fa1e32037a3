"""Random secrets in random places never survive; what is innocent does."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_window.aftermath.masking import MASK, Mask, is_secret, secret_values

SECRETS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=["C", "Z"]), min_size=8
).filter(lambda text: not text.startswith("-") and "***" not in text and "=" not in text and len(set(text)) > 2)
PLAIN = st.text("abcdefghijk lmnop 0123456789.,", max_size=30)
NAMES = st.sampled_from(
    ["DB_PASSWORD", "WANDB_API_KEY", "HF_TOKEN", "clientSecret", "aws-secret-access-key", "AUTH", "passphrase"]
)


@given(SECRETS, NAMES, PLAIN, PLAIN)
def test_a_value_of_the_environment_survives_nowhere(secret: str, name: str, before: str, behind: str) -> None:
    mask = Mask(secret_values({name: secret}))
    for text in (secret, f"{before}{secret}{behind}", f"{before} '{secret}'", json.dumps({"x": f"{before}{secret}"})):
        assert secret not in mask.text(text) and secret not in mask.known(text)
    assert mask.environment({name: secret, "PLAIN": before})[name] == MASK
    assert secret not in json.dumps(mask.tree({"lines": [before, f"{before} {secret}"], secret: 1}), ensure_ascii=False)


@given(SECRETS, NAMES)
def test_an_argument_behind_the_name_of_a_secret_survives_nowhere(secret: str, name: str) -> None:
    option = f"--{name.lower().replace('_', '-')}"
    for argv in ([option, secret], [f"{option}={secret}"], [f"{name}={secret}"]):
        words = ["python", "train.py", *argv, "--lr", "-1"]
        mask = Mask(secret_values(None, words))
        assert secret not in "\0".join(mask.argv(words))
        assert mask.argv(words)[-2:] == ["--lr", "-1"]
        assert secret not in mask.text(f"started with {secret}!")


UNKNOWN = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789!%+/.,:", min_size=6).filter(
    lambda text: text.strip(".,:")
)


@given(UNKNOWN, NAMES, PLAIN)
def test_what_stands_behind_the_name_of_a_secret_goes_though_nobody_knew_it(value: str, name: str, plain: str) -> None:
    mask = Mask()
    for text in (
        f"{name}={value}",
        f"{plain}\n{name}: {value}\n{plain}",
        json.dumps({"epochs": 3, name: value}),
        json.dumps(json.dumps({name: value})),
        f"--{name} {value} --epochs 3",
        f"['--{name}', '{value}']",
        f"Authorization: Bearer {value}",
        f"postgres://user:{value}@db.local/x",
    ):
        told = mask.text(text)
        assert value not in told.replace(MASK, "").replace(name, "").replace(plain, ""), told


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_abcdefghijklmnop1234567890ABCDEFGHIJ",
        "hf_QwErTyUiOpAsDfGhJkLzXcVbNm",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sflKxwRJSMeKKF2QT4f",
        "d41d8cd98f00b204e9800998ecf8427e",
        "q7RtY2uIoP9aSdF4gHjK6lZxC8vBnM1q",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_key_goes_wherever_it_stands(secret: str) -> None:
    told = Mask().text(f"loading {secret} now\nnext line")
    assert secret not in told and "b3Blb" not in told and told.endswith(" now\nnext line")


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3/5  loss 0.21  accuracy 0.97  tokens/s: 1200",
        "max_tokens=512 tokenizer=gpt2 n_keypoints: 17",
        "KeyError: 'layer1.weight'",
        "ssh://root@desk:22 rsync://root@desk:/tree",
        "python train.py --lr -1 --batch-size 32",
        "[rank 0] /home/me/projects/very-long-name/of/a/folder/data.bin",
        "public_key: none of your business",
    ],
)
def test_what_is_innocent_stays(line: str) -> None:
    assert Mask(secret_values({"PATH": "/usr/bin", "PWD": "/home/me/projects"})).text(line) == line


def test_names_of_secrets_and_those_that_only_sound_like_it() -> None:
    assert all(map(is_secret, ["token", "DB_PASS", "sshKey", "api-key", "X-Auth", "controller.join.token"]))
    assert not any(map(is_secret, ["max_tokens", "tokenizer", "author", "keyboard", "PUBLIC_KEY", "pin_memory", "PWD"]))


def test_secrets_of_a_config_are_found_in_every_corner() -> None:
    tree = {
        "cluster": {"controller": {"join": {"token": "00112233445566"}}, "env": {"DB_PASSWORD": 12345678}},
        "commands": {"train": {"run": "python t.py --api-key sesame-open", "append": ["--secret", "abracadabra"]}},
        "data": "sftp://me:hocuspocus@box/x",
    }
    found = secret_values(None, (), tree)
    assert {"00112233445566", "12345678", "abracadabra", "hocuspocus"} <= found
    assert "sesame-open" not in json.dumps(Mask(found).tree(tree))


@pytest.mark.parametrize(
    "piece", ["x", "a.b-c.", "http://", "--a-", "token", "-----BEGIN A PRIVATE KEY-----", "eyJ", "a=", "é "]
)
def test_a_line_without_end_costs_no_more_than_its_length(piece: str) -> None:
    mask = Mask(["sesame-open"])
    for size in (2_000, 40_000):
        began = time.process_time()
        mask.text(piece * (size // len(piece)))
        spent = time.process_time() - began
    assert spent < 2.0, "it grows with the square of the length"
