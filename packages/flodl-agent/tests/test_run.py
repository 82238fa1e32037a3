"""`flodl-agent run` against a window that speaks the wire: one host's life, from the hello to the goodbye."""

from __future__ import annotations

import json
from pathlib import Path

from agent_fakes import Box, FakeWindow, formed, wait_gone

from flodl_wire import blob, environ
from flodl_wire.join_messages import Abort, Bye, Hello, HostFault, Log, RankExited, RelayExited, Step
from flodl_wire.specs import Envelope


def test_a_host_comes_in_runs_its_ranks_and_says_goodbye(window: FakeWindow, box: Box) -> None:
    agent = box.agent(window.spec(ranks=2, path=str(box.project)))
    link = window.link()
    link.accept([0, 1])
    hello = link.wait_for(Hello)
    assert [offer.kind for offer in hello.devices] == ["cpu", "cpu"]
    program = f"import os; print('hello from', os.environ['{environ.LOCAL_RANK}'])"
    link.send(formed(["python", "-c", program], box.project, [0, 1]))
    link.answer_bye()
    assert agent.wait() == 0
    assert link.lines(0) == ["hello from 0"] and link.lines(1) == ["hello from 1"]
    assert sorted(exited.rank for exited in link.all(RankExited)) == [0, 1]
    assert all(exited.code == 0 and not exited.ordered for exited in link.all(RankExited))
    assert {step.text for step in link.all(Step)} == {"relay started", "rank 0 started", "rank 1 started"}
    assert agent.said() == "" and agent.printed() == ""


def test_what_reaches_a_rank_is_what_was_written_byte_for_byte(window: FakeWindow, box: Box) -> None:
    words = ["two words", "it's", '"quoted"', "$HOME `date` $(x)", "a\nb", "", "gör 🙂 än", "--", "-x", "\\n", "*"]
    env = {f"WORD_{index}": word for index, word in enumerate(words)}
    show = (
        "import json, os, sys; "
        "print(json.dumps([sys.argv[1:], {k: v for k, v in os.environ.items() if k.startswith('WORD_')}]))"
    )
    for locale in ("C", "C.UTF-8", "POSIX"):
        agent = box.agent(window.spec(path=str(box.project)), LC_ALL=locale)
        link = window.link()
        link.accept([0])
        link.send(formed(["python", "-c", show, *words], box.project, env=env, relay=False))
        link.answer_bye()
        assert agent.wait() == 0
        assert json.loads("".join(link.lines(0, "out"))) == [words, env], locale


def test_a_rank_knows_its_world_from_its_environment(window: FakeWindow, box: Box) -> None:
    show = "import json, os; print(json.dumps(dict(os.environ))); print(os.getcwd())"
    (box.project / "sub dir").mkdir()
    spec = window.spec(path=str(box.project), ranks=2, data_path="/data/here", gpu_ram_share=0.5)
    agent = box.agent(spec, CUDA_VISIBLE_DEVICES="7", **{environ.CONFIG_JSON: "00"})
    link = window.link()
    link.accept([4, 5])
    link.send(formed(["python", "-c", show], box.project, [4, 5], cwd="sub dir", env={"PYTHONUNBUFFERED": "2"}))
    link.answer_bye()
    assert agent.wait() == 0
    first, cwd = link.lines(4)
    env = json.loads(first)
    assert cwd == str(box.project / "sub dir")
    envelope = blob.decode(env[environ.CLUSTER_JSON], Envelope, "it")
    assert (envelope.controller.host, envelope.controller.port) == ("127.0.0.1", window.port)
    assert (envelope.worker.data_path, envelope.worker.gpu_ram_share) == ("/data/here", 0.5)
    assert Path(envelope.relay_socket).name == "relay.sock" and len(envelope.relay_socket) <= 107
    assert env[environ.LOCAL_RANK] == "0" and json.loads(link.lines(5)[0])[environ.LOCAL_RANK] == "1"
    assert env["CUDA_VISIBLE_DEVICES"] == "" and env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert env[environ.DATA_PATH] == "/data/here" and env["PYTHONUNBUFFERED"] == "2"
    assert env["PATH"].startswith(f"{box.bin}:") and int(env["OMP_NUM_THREADS"]) >= 1
    assert environ.CONFIG_JSON not in env and environ.RELAY_JSON not in env and "RANK" not in env
    assert link.lines(None) == [f"relay of node-a 127.0.0.1 {window.port}"]
    assert not Path(envelope.relay_socket).parent.exists()


def test_every_last_word_of_a_failing_rank_comes_before_its_exit(window: FakeWindow, box: Box) -> None:
    program = (
        "import os, sys\n"
        "for i in range(5000): print('line', i, 'x' * 40)\n"
        "sys.stdout.flush(); sys.stderr.write('no end of line'); sys.stderr.flush(); os._exit(3)"
    )
    agent = box.agent(window.spec(path=str(box.project)))
    link = window.link()
    link.accept([0])
    link.send(formed(["python", "-c", program], box.project, relay=False))
    exited = link.wait_for(RankExited)
    before = [message for message in link.heard[: link.heard.index(exited)] if isinstance(message, Log)]
    printed = [line for log in before if log.stream == "out" for line in log.lines]
    assert len(printed) == 5000 and printed[-1].startswith("line 4999 ")
    assert (exited.code, exited.signal, exited.ordered) == (3, None, False)
    assert len(exited.tail) == 50 and "no end of line" in exited.tail
    link.answer_bye()
    assert agent.wait() == 0


def test_a_command_that_does_not_exist_is_named_with_the_path_that_was_searched(window: FakeWindow, box: Box) -> None:
    agent = box.agent(window.spec(path=str(box.project), ranks=2))
    link = window.link()
    link.accept([0, 1])
    link.send(formed(["pyton", "train.py"], box.project, [0, 1]))
    fault = link.wait_for(HostFault)
    assert (fault.what, fault.why) == ("cannot start rank 0 on node-a", 'no such command "pyton"')
    assert fault.fix.startswith(f"PATH there is {box.bin}:")
    link.answer_bye()
    assert agent.wait() == 1
    assert 'flodl-agent on node-a: cannot start rank 0 on node-a: no such command "pyton"' in agent.said()
    assert all(exited.signal for exited in link.all(RelayExited))


def test_a_rank_count_that_does_not_fit_is_refused_before_anything_starts(window: FakeWindow, box: Box) -> None:
    agent = box.agent(window.spec(path=str(box.project), ranks=2))
    link = window.link()
    link.accept([0, 1])
    link.send(formed(["true"], box.project, [0]))
    assert "it offered 2 devices" in link.wait_for(HostFault).why
    link.answer_bye()
    assert agent.wait() == 1 and not link.all(Step)


def test_an_abort_ends_everything_and_what_was_printed_until_then_arrives(window: FakeWindow, box: Box) -> None:
    log = box.root / "own.log"
    program = (
        "import itertools, time\n"
        f"own = open({str(log)!r}, 'w', buffering=1)\n"
        "for i in itertools.count(): print(i); own.write(f'{i}\\n'); time.sleep(0.01)"
    )
    agent = box.agent(window.spec(path=str(box.project)), MARK="abort-test-mark")
    link = window.link()
    link.accept([0])
    link.send(formed(["python", "-c", program], box.project))
    link.wait_line(0, "20")
    link.send(Abort("node-b is lost"))
    exited = link.wait_for(RankExited)
    assert (exited.signal, exited.ordered) == (15, True)
    link.answer_bye()
    assert agent.wait() == 1
    assert "aborted by the controller: node-b is lost" in agent.said()
    assert int(link.lines(0)[-1]) >= int(log.read_text().splitlines()[-1])
    wait_gone("abort-test-mark")


def test_mode_torch_gives_a_plain_script_torchruns_environment(window: FakeWindow, box: Box) -> None:
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    agent = box.agent(window.spec(path=str(box.project), ranks=2))
    link = window.link()
    link.accept([2, 3])
    link.send(formed(["python", "-c", show], box.project, [2, 3], mode="torch"))
    link.answer_bye()
    assert agent.wait() == 0
    env = json.loads(link.lines(3)[0])
    assert {name: env[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")} == {
        "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
    }  # fmt: skip
    assert env["TORCHELASTIC_USE_AGENT_STORE"] == "True" and env["TORCHELASTIC_RUN_ID"] == "run-1"
    assert env["MASTER_PORT"] == json.loads(link.lines(2)[0])["MASTER_PORT"] != "0"
    assert env["GLOO_SOCKET_IFNAME"] == "lo" and env["NCCL_SOCKET_IFNAME"] == "=lo"


def test_the_spec_may_come_from_the_environment_and_stdin_is_then_left_alone(window: FakeWindow, box: Box) -> None:
    spec = window.spec(path=str(box.project))
    agent = box.start("run", box.environment(**{environ.AGENT_JSON: blob.encode(spec)}))
    agent.close_stdin()
    link = window.link()
    link.accept([0])
    link.send(formed(["true"], box.project, relay=False))
    assert link.wait_for(RankExited).code == 0
    link.answer_bye()
    assert agent.wait() == 0
    assert not [message for message in link.heard if isinstance(message, HostFault)]
    assert link.wait_for(Bye).reason == "every process has ended"
