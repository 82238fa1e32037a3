"""The page and its data over HTTP: who gets what, who is refused, who is dropped."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from window_house import House, http, in_house

from flodl_window.http_door import own_names
from flodl_window.live import answers, binding, feed, joined, requests
from flodl_window.live.board import Board
from flodl_wire.faults import Refused
from flodl_wire.hub_messages import EpochDone, Progress, RankProgress, Spent, Timeline, TrainingBegan
from flodl_wire.join_messages import GpuLoad, HostLoad
from flodl_wire.state import Member, RankState, State

HOSTILE = "</script><b>\x1b[31m\u202e\"'{}"


class Pages(Board):
    """A board beside a state that tests may change."""

    def __init__(self) -> None:
        self.state = State("run-1", "training", "why", "cpu_cadence", 2, 1, 2, 2, None, None, "auto", False)
        self.state.members = [Member(HOSTILE, [0, 1], ["cpu", "cpu"], [HOSTILE, "cpu"], "cpu", 0.1)]
        self.state.ranks = [RankState(rank, HOSTILE, "cpu", "training") for rank in (0, 1)]
        self.now = 0.0
        self.left = asyncio.Event()
        super().__init__("run-1", "cpu_cadence", "0123456789abcdef", lambda: self.state, lambda: self.now)

    def is_own_name(self, host: str) -> bool:
        return host in own_names("desk.example") or host == "127.0.0.1"

    def start(self, *, loopback: bool, authorization: str) -> tuple[int, dict[str, object]]:
        return 409, {"error": "no switch"}

    def unwatch(self, watcher: feed.Watcher) -> None:
        super().unwatch(watcher)
        self.left.set()

    def train(self) -> None:
        self.hear(TrainingBegan("go"))
        progress = Progress(
            0, 3, 10, 100, 200.0, 0.5, 0.9, 0.1, rounds=2, ranks=[RankProgress(0, 120.0, 3), RankProgress(1, 80.0, 2)]
        )
        self.state.progress = progress
        self.hear(progress)
        self.hear(Timeline(0.5, [Spent(0, 0.4, 0.05, 0.05, 3, 30)]))
        self.hear(EpochDone(0, "epoch", 0.5, 1.0, 100, eval={HOSTILE: 0.9}))
        load = HostLoad(1.0, 0.5, 1, 4, 10.0, 20.0, [GpuLoad(0, 0.9, 1, 2)])
        self.history.note_load(0.0, HOSTILE, load, {0: HOSTILE})
        self.history.note_lines(f"{HOSTILE}:0", [HOSTILE])


def with_pages(test: Callable[[House, Pages], Any]) -> None:
    async def run(house: House) -> None:
        pages = Pages()
        house.door.pages = pages
        await test(house, pages)

    in_house(run)


BROWSER = b"Host: localhost:1337\r\nAccept-Encoding: gzip, deflate\r\nAccept: text/html,*/*;q=0.8\r\n"


def get(path: str, *lines: str, host: str = "127.0.0.1:1", method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


# what is at an address


def test_a_browser_gets_the_page_and_curl_the_state_at_the_same_address() -> None:
    async def test(house: House, pages: Pages) -> None:
        status, headers, body = await http(house, b"GET / HTTP/1.1\r\n" + BROWSER + b"\r\n")
        assert status == 200 and headers["content-type"] == "text/html; charset=utf-8" and b"<!doctype html>" in body
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'sha256-" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and headers["x-content-type-options"] == "nosniff"
        for accept in ("*/*", "application/json", "application/json, text/html"):
            status, headers, body = await http(house, get("/", f"Accept: {accept}"))
            assert headers["content-type"] == "application/json" and json.loads(body)["run"] == "run-1"

    with_pages(test)


def test_the_page_is_one_document_that_needs_nothing_else_and_runs_nothing_else() -> None:
    """What it would have to ask for may not come, and a page without a part of it stays as it is for ever."""
    answer = answers.page({})
    page = answer.body.decode()
    policy = answer.headers["Content-Security-Policy"]
    for tag in ("script", "style"):
        ((_, text),) = re.findall(rf"<{tag}([^>]*)>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert len(text) > 4000 and f"'sha256-{digest}'" in policy
        assert "<!--" not in text, "behind it a browser would not see the end"
        assert set(re.findall(r"url\(.{6}", text)) <= {'url("data:'} and not re.search(r"\bimport\b", text)
        page = page.replace(text, "")
    mark, *links = re.findall(r"(?:src|href|action|srcset)\s*=\s*\"([^\"]*)\"", page)
    assert mark.startswith("data:") and set(links) == {"#main", "/state.json", "/history.json", "/metrics"}
    assert "style=" not in page and "onclick" not in page and "{" not in page


def test_what_the_page_is_joined_from_is_written_for_it() -> None:
    declared: list[str] = []
    for name in answers.MODULES:
        text = (joined.PAGE / name).read_text()
        assert "innerHTML" not in text and "document.write" not in text and "eval(" not in text, name
        for line in re.findall(r"^.*\bimport\b.*$", text, re.M):
            wanted = re.fullmatch(r'import \{ [\w, ]+ \} from "\./(\w+\.js)";', line)
            assert wanted and wanted[1] in answers.MODULES[: answers.MODULES.index(name)], f"{name}: {line}"
        declared += re.findall(r"^(?:export )?(?:const|let|class|function\*?) (\w+)", text, re.M)
    assert len(declared) > 40 and len(declared) == len(set(declared)), "one script, one name each"
    for path in joined.PAGE.iterdir():
        if path.is_file():
            text = path.read_text().replace("http://www.w3.org/", "")
            assert "http://" not in text and "https://" not in text, path


def test_the_page_has_a_tag_and_is_not_sent_twice() -> None:
    async def test(house: House, pages: Pages) -> None:
        status, headers, body = await http(house, b"GET / HTTP/1.1\r\n" + BROWSER + b"\r\n")
        assert status == 200 and len(body) == int(headers["content-length"]) > 50_000
        tag = headers["etag"]
        again = b"GET / HTTP/1.1\r\n" + BROWSER + f"If-None-Match: {tag}\r\n\r\n".encode()
        status, headers, body = await http(house, again)
        assert (status, body, headers["etag"]) == (304, b"", tag) and "content-length" not in headers
        for path in ("/page/live.js", "/page/../board.py", "/index.html"):
            assert (await http(house, get(path)))[0] == 404, path

    with_pages(test)


def test_the_history_is_one_document() -> None:
    async def test(house: House, pages: Pages) -> None:
        pages.train()
        status, _, body = await http(house, get("/history.json"))
        made = json.loads(body)
        assert status == 200 and made["state"]["phase"] == "training" and made["ranks"]["rate"]["1"] == [80.0]
        status, headers, body = await http(house, get("/history.json", method="HEAD"))
        assert (status, body) == (200, b"") and int(headers["content-length"]) > 100

    with_pages(test)


def test_the_metrics_are_what_the_client_librarys_own_parser_takes() -> None:
    async def test(house: House, pages: Pages) -> None:
        pages.train()
        status, headers, body = await http(house, get("/metrics"))
        assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
        samples = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
        assert samples["flodl_samples_per_second",] == 200.0
        assert samples["flodl_phase", "training"] == 1.0 and samples["flodl_phase", "done"] == 0.0
        assert samples["flodl_rank_samples_per_second", "0", HOSTILE] == 120.0
        shown = "</script><b>\ufffd\"'{}"
        assert samples["flodl_evaluation", shown] == 0.9 and samples["flodl_host_cpu_share", shown] == 0.5
        assert samples["flodl_gpu_busy_share", "0", shown] == 0.9

    with_pages(test)


# who may read


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["Host: localhost:1", "Sec-Fetch-Site: same-origin", "Accept-Encoding: gzip"], 200),
        (["Host: 127.0.0.1:1", "Origin: http://127.0.0.1:1"], 200),
        (["Host: desk.example:1", "Accept-Encoding: gzip, br"], 200),
        (["Host: localhost:1", "Sec-Fetch-Site: none"], 200),
        (["Host: any.name:1"], 200),  # curl
        (["Host: any.name:1", "Accept-Encoding: identity"], 200),  # fdl status
        (["Host: evil.example:1", "Accept-Encoding: gzip"], 403),  # DNS rebinding
        (["Host: evil.example:1", "Sec-Fetch-Site: same-origin"], 403),
        (["Host: evil.example:1", "Origin: http://evil.example:1"], 403),
        (["Host: localhost:1", "Origin: http://evil.example"], 403),
        (["Host: localhost:1", "Origin: http://localhost:8080"], 403),
        (["Host: localhost:1", "Origin: null"], 403),
        (["Host: localhost:1", "Sec-Fetch-Site: cross-site"], 403),
        (["Host: localhost:1", "Sec-Fetch-Site: same-site"], 403),
        (["Host: localhost:1", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"], 403),
        (
            ["Host: localhost:1", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"],
            403,
        ),
        (
            ["Host: localhost:1", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"],
            200,
        ),
    ],
)
def test_only_the_runs_own_page_may_read_it(lines: list[str], status: int) -> None:
    async def test(house: House, pages: Pages) -> None:
        for path in ("/state.json", "/history.json", "/metrics"):
            request = "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()
            assert (await http(house, request))[0] == status

    with_pages(test)


@pytest.mark.parametrize(
    "line", ["Origin: http://localhost:1", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"]
)
def test_no_page_may_fire_a_run_its_own_neither(line: str) -> None:
    async def test(house: House, pages: Pages) -> None:
        status, _, body = await http(house, get("/start", line, host="localhost:1", method="POST"))
        assert status == 403 and "web pages" in json.loads(body)["error"]
        assert (await http(house, get("/start", host="localhost:1", method="POST")))[0] == 409

    with_pages(test)


# the stream


class Reader:
    """An open stream."""

    def __init__(self, house: House) -> None:
        self.house = house

    async def open(self, *lines: str) -> Reader:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.house.port)
        self.writer.write(get("/events", *lines))
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head and b"text/event-stream" in head and b"content-length" not in head.lower()
        return self

    async def event(self) -> tuple[str, str, Any]:
        """Kind, id, data of the next event."""
        while True:
            text = (await self.reader.readuntil(b"\n\n")).decode()
            fields = dict(line.split(": ", 1) for line in text.strip().split("\n") if not line.startswith(":"))
            if "event" in fields:
                return fields["event"], fields.get("id", ""), json.loads(fields["data"])

    def close(self) -> None:
        self.writer.close()


def test_a_page_gets_the_history_then_the_state_then_the_news() -> None:
    async def test(house: House, pages: Pages) -> None:
        pages.train()
        page = await Reader(house).open()
        kind, number, history = await page.event()
        assert (kind, number) == ("history", "01234567-1") and history["epochs"]["loss"] == [0.5]
        kind, number, state = await page.event()
        assert (kind, number, state["phase"]) == ("state", "", "training")
        pages.train()
        pages.tick()
        kind, number, news = await page.event()
        assert (kind, number) == ("news", "01234567-2") and news["progress"]["rates"] == {"0": 120.0, "1": 80.0}
        pages.end()
        while (event := await page.event())[0] != "end":
            assert event[0] in ("news", "state")
        assert await page.reader.read() == b""
        page.close()

    with_pages(test)


def test_what_a_page_finds_in_the_history_does_not_come_again_as_news() -> None:
    async def test(house: House, pages: Pages) -> None:
        for number in range(6):
            pages.history.note_mark(float(number), "notice", f"mark {number}")
            pages.now = number * 0.7
            page = await Reader(house).open()
            kind, _, history = await page.event()
            told = [mark[2] for mark in history["marks"]]
            pages.tick()
            pages.history.note_mark(float(number), "end", "")
            pages.tick()
            wanted = [text for at in range(number + 1) for text in (f"mark {at}", "")]
            while len(told) < len(wanted):
                event = await page.event()
                told += [mark[2] for mark in event[2]["marks"]] if event[0] == "news" else []
            assert kind == "history" and told == wanted
            page.close()

    with_pages(test)


def test_who_comes_back_gets_what_it_missed_and_nothing_twice() -> None:
    async def test(house: House, pages: Pages) -> None:
        for number in range(1, 6):
            pages.history.note_mark(float(number), "notice", f"mark {number}")
            pages.tick()
        page = await Reader(house).open("Last-Event-ID: 01234567-3")
        told = [(await page.event())[::2] for _ in range(3)]
        assert [data["marks"][0][2] for kind, data in told if kind == "news"] == ["mark 4", "mark 5"]
        page.close()
        for stale in ("01234567-99", "another0-3", "01234567-x", "", "01234567-" + "9" * 400):
            page = await Reader(house).open(f"Last-Event-ID: {stale}")
            assert (await page.event())[0] == "history", stale
            page.close()

    with_pages(test)


def test_news_that_has_gone_by_means_the_whole_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "RING_BYTES", 500)

    async def test(house: House, pages: Pages) -> None:
        for number in range(1, 20):
            pages.history.note_mark(float(number), "notice", f"mark {number} " + "x" * 100)
            pages.tick()
        page = await Reader(house).open("Last-Event-ID: 01234567-2")
        kind, number, history = await page.event()
        assert (kind, number) == ("history", "01234567-19") and len(history["marks"]) == 19
        page.close()

    with_pages(test)


def test_who_does_not_read_is_dropped_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "UNREAD", 64 * 1024)

    async def test(house: House, pages: Pages) -> None:
        deaf, good = await Reader(house).open(), await Reader(house).open()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        events = 0
        for number in range(2000):
            pages.now = float(number)
            pages.history.note_lines("a:0", ["x" * 390] * 60)
            pages.tick()
            while events < number:
                events += (await good.event())[0] == "news"
            if pages.feed.dropped:
                break
        assert pages.feed.dropped == 1 and len(pages.feed) == 1
        deaf.close()
        good.close()

    with_pages(test)


def test_only_so_many_pages_are_served_and_the_next_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_PAGES", 2)

    async def test(house: House, pages: Pages) -> None:
        open_pages = [await Reader(house).open() for _ in range(2)]
        status, _, body = await http(house, get("/events"))
        assert status == 503 and "pages are open" in json.loads(body)["error"]
        open_pages[0].close()
        await pages.left.wait()
        open_pages.append(await Reader(house).open())
        for page in open_pages[1:]:
            page.close()

    with_pages(test)


def test_an_open_page_is_no_stranger_and_outlives_the_doors_patience() -> None:
    async def test(house: House) -> None:
        pages = Pages()
        house.door.pages = pages
        page = await Reader(house).open()
        assert (await http(house, b"GET / HT"))[0] == 408, "the door's patience has ended meanwhile"
        pages.history.note_mark(1.0, "notice", "still here")
        pages.tick()
        while (await page.event())[0] != "news":
            pass
        page.close()

    in_house(test, http_s=0.2)


# the page on an address of its own


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("192.168.1.5", ("192.168.1.5", 3000)),
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":8080", ("0.0.0.0", 8080)),
        ("*", ("0.0.0.0", 3000)),
        ("[::1]:99", ("::1", 99)),
        ("::1", ("::1", 3000)),
        ("localhost", ("127.0.0.1", 3000)),
    ],
)
def test_an_address_for_the_page(text: str, wanted: tuple[str, int]) -> None:
    assert binding.parse(text) == wanted


@pytest.mark.parametrize("text", ["host.example", "1.2.3.4:x", "1.2.3.4:0", "1.2.3.4:65536", "[::1]x", "1.2.3.4.5"])
def test_what_is_no_address_is_refused_in_words(text: str) -> None:
    with pytest.raises(Refused) as caught:
        binding.parse(text)
    assert caught.value.fix


def test_the_pages_own_door_reads_and_does_nothing_else() -> None:
    async def run() -> None:
        pages = Pages()
        door = binding.PageDoor(pages, 5.0)
        assert await door.open("127.0.0.1", 0) == ""
        port = door.port
        house: Any = type("At", (), {"port": port})
        assert (await http(house, get("/state.json")))[0] == 200
        assert (await http(house, get("/start", host="localhost", method="POST")))[0] == 404
        assert (await http(house, get("/", "Accept-Encoding: gzip", host="evil.example")))[0] == 403
        page = await Reader(house).open()
        assert (await page.event())[0] == "history"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\xf1\x0d\x1f\xd1\x00\x01\x01\x01" + b"m" * 48 + b"\r\n\r\n")
        assert b" 400 " in await reader.read(), "no host comes in here"
        other = binding.PageDoor(pages, 5.0)
        assert "cannot serve the page" in await other.open("127.0.0.1", port)
        door.close()
        for each in (writer, page):
            each.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_host_header_is_a_name_and_a_port() -> None:
    for header, host in [("a:1", "a"), ("[::1]:2", "::1"), ("a", "a"), ("", ""), ("::1", "::1")]:
        assert requests.host_of(header) == host
