"""`mgpu web` as Chromium shows it, by keyboard, in the dark, on a telephone; the commands of docs/web.md."""

import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support import arbiter, web
from tests.support.arbiter import Arbiter
from tests.support.chromium import Chromium, chromium
from tests.support.console import Step, matches, steps
from tests.support.places import MGPU, REPOSITORY
from tests.support.waiting import until

STEPS = steps((REPOSITORY / "docs" / "web.md").read_text())
TOKEN = "a-word-of-16-characters"
# Text and what it stands on, by WCAG 2's formula; 4.5 is what it asks of small text.
CONTRASTS = """
(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => numbers(colour).slice(0, 3).map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, i) => sum + each * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (of) => {
    const found = getComputedStyle(of).backgroundColor;
    return numbers(found)[3] === 0 ? ground(of.parentElement) : found;
  };
  const poor = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const of = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !of.checkVisibility()) continue;
    const [dark, bright] = [getComputedStyle(of).color, ground(of)].map(light).sort((a, b) => a - b);
    const found = (bright + 0.05) / (dark + 0.05);
    if (found < 4.5) poor.push([walk.currentNode.data, found]);
  }
  return poor;
})()
"""
FOCUSED = "document.activeElement.textContent"
TWO_LOOKS = "new Promise((done) => setTimeout(done, 2500))"


@pytest.fixture(scope="module")
def node(private_host: None) -> Iterator[Arbiter]:
    with web.busy() as mgpu:
        yield mgpu


@pytest.fixture(scope="module")
def address(node: Arbiter) -> Iterator[str]:
    with web.serving(node) as found:
        yield found


@pytest.fixture
def browser(address: str) -> Iterator[Chromium]:
    """With the page open, which has said nothing on its console by the end."""
    with chromium() as found:
        found.look(1280, 1000)
        web.opened(found, address)
        yield found
        assert found.said == []


def texts(browser: Chromium, selector: str) -> list[str]:
    found: list[str] = browser.ask(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText)"
    )
    return found


def tab_to(browser: Chromium, text: str) -> None:
    for _ in range(60):
        if browser.ask(FOCUSED) == text:
            return
        browser.press("Tab")
    raise AssertionError(f"no way to {text} by the key Tab")


def test_page_shows_who_has_what(node: Arbiter, browser: Chromium) -> None:
    listing = node.listing()
    rows = texts(browser, "tbody tr")
    assert len(rows) == len(listing["containers"])
    for name in ("prod/search", "prod/rank", "prod/chat", "batch/train", "batch/embed", "batch/index"):
        assert any(f"{name}/main" in row for row in rows), name
    [tuned] = [row for row in rows if "batch/tune/main" in row]
    assert "evicted" in tuned
    sums = "\n".join(texts(browser, ".sums"))
    assert [f"lent {card['reclaimable_mib'] // 1024}.0 GiB" in sums for card in listing["cards"]] == [
        True
    ] * 2
    assert "evicted 1.7 GiB" in sums
    assert len(texts(browser, ".lane")) == len(rows)
    browser.until("document.querySelectorAll('.lane.offline .run').length")
    assert texts(browser, "#state") == ["all well"] or texts(browser, "#state") == ["attention"]
    assert any("start" in row for row in texts(browser, "#health li"))


def test_refusal_is_told_and_a_name_is_but_a_text(browser: Chromium) -> None:
    browser.ask("document.querySelector('[data-kind=GPURefused]').click()")
    [refused] = texts(browser, "#events li")
    assert web.GREEDY in refused
    assert "20000 MiB asked" in refused
    assert browser.ask("document.querySelectorAll('main img').length") == 0


def test_page_goes_on_by_itself(node: Arbiter, browser: Chromium) -> None:
    [tuned] = [each for each in node.containers() if each["pod"] == "tune"]
    chip = "[...document.querySelectorAll('tbody tr')].find((row) => /tune/.test(row.textContent)).innerText"
    node.mgpu("resume", tuned["id"])
    try:
        browser.until(f"!/evicted/.test({chip})")
        browser.until("/GPUMemoryRestored/.test(document.getElementById('events').textContent)")
    finally:
        node.mgpu("evict", tuned["id"])
    browser.until(f"/evicted/.test({chip})")


def test_keyboard_reaches_a_container_and_comes_back(browser: Chromium) -> None:
    tab_to(browser, "batch/tune/main")
    # It is drawn anew twice meanwhile, and the keyboard is where it was; below it is while the story is open.
    browser.ask(TWO_LOOKS)
    assert browser.ask(FOCUSED) == "batch/tune/main"
    browser.press("Enter")
    browser.until("document.getElementById('story').open")
    assert texts(browser, "#story-title") == ["batch/tune/main"]
    browser.until("document.querySelector('#story-log li')")
    story = texts(browser, "#story")[0]
    for word in ("Comes back", "when it is resumed by hand", "GPUMemoryEvicted", "mib=1700"):
        assert word in story
    assert browser.ask("document.getElementById('story').contains(document.activeElement)")
    browser.ask(TWO_LOOKS)
    browser.press("Escape")
    browser.until(f"{FOCUSED} == 'batch/tune/main'")
    tab_to(browser, "Refusals")
    browser.press(" ")
    assert browser.ask("document.querySelector('[aria-pressed=true]').textContent") == "Refusals"
    browser.press("Tab", shift=True)
    assert browser.ask(FOCUSED) == "All"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_page_fits_and_can_be_read(browser: Chromium, scheme: str, width: int) -> None:
    browser.look(width, 800, scheme, telephone=width < 500)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(CONTRASTS) == []
    picture = Image.open(io.BytesIO(browser.picture())).convert("L")
    corner = picture.getpixel((2, 2))
    assert isinstance(corner, int)
    assert (corner > 200) is (scheme == "light")
    browser.ask("document.querySelector('.open').click()")
    browser.until("document.getElementById('story').open")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(CONTRASTS) == []


def test_buttons_of_a_telephone_are_as_large_as_a_finger_needs(browser: Chromium) -> None:
    browser.look(390, 800, telephone=True)
    small = "[...document.querySelectorAll('button')].filter((each) => each.checkVisibility() && "
    assert browser.ask(f"{small} each.getBoundingClientRect().height < 24).length") == 0


def test_nodes_are_shown_by_their_metrics(node: Arbiter) -> None:
    with web.serving(node, *web.nodes(node)) as url, chromium() as browser:
        browser.look(1280, 1000)
        web.opened(browser, url)
        rows = texts(browser, "tbody tr")
        assert len(rows) == len(node.listing()["containers"])
        for name in ("prod/search/main", "batch/train/main"):
            assert any(name in row for row in rows), name
        [tuned] = [row for row in rows if "batch/tune/main" in row]
        assert "evicted 1.7 GiB" in tuned
        first, second = texts(browser, ".node")
        assert "refused card-too-small 1" in first
        assert "moved evicted" in first
        assert "away" in second
        assert "Connection refused" in second
        assert texts(browser, "#state") == ["look at 1 of 2 nodes"]
        for scheme in ("light", "dark"):
            browser.look(390, 800, scheme, telephone=True)
            assert browser.ask("document.documentElement.scrollWidth") <= 390
            assert browser.ask(CONTRASTS) == []
        assert browser.said == []


def test_reader_brings_the_token(node: Arbiter, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    with web.serving(node, "--listen", "127.0.0.1:0", "--token-file", file) as url, chromium() as browser:
        browser.open(url)
        browser.until("document.getElementById('ask')?.open")
        assert browser.ask("document.querySelectorAll('.gpu').length") == 0
        browser.tell("Input.insertText", text=TOKEN)
        browser.press("Enter")
        browser.until("document.querySelectorAll('.gpu').length == 2")
        browser.ask("sessionStorage.clear()")
        browser.open("about:blank")
        web.opened(browser, f"{url}#token={TOKEN}")
        assert TOKEN not in browser.ask("location.href")


def test_page_says_that_mgpud_is_gone(private_host: None) -> None:
    with arbiter.running() as mgpu, web.serving(mgpu) as url, chromium() as browser:
        web.opened(browser, url)
        os.kill(mgpu.pid, signal.SIGTERM)
        browser.until("/mgpud is not running/.test(document.getElementById('away').innerText)")
        assert texts(browser, "#state") == ["failed"]


def test_picture_is_of_this_page() -> None:
    with Image.open(web.PICTURE) as picture:
        assert picture.size == web.SIZE
    assert web.PICTURE.stat().st_size <= 150 << 10


@pytest.mark.parametrize("step", STEPS, ids=[step.command[:50] for step in STEPS])
def test_docs_page_prints_what_it_says(node: Arbiter, tmp_path: Path, step: Step) -> None:
    """Ports and paths of the whole machine are another run's, too: the command gets its own."""
    command = step.command.replace("/run/mgpu/", f"{tmp_path}/").replace("/etc/mgpu/", f"{tmp_path}/")
    shown = step.output.replace("/run/mgpu/", f"{tmp_path}/").replace(":9412/", ":...")
    if command.startswith("mgpu web") and "--listen" not in command:
        command += " --listen 127.0.0.1:0"
    command = command.replace(":9412", ":0") if "unix:" not in command else command
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    printed = tmp_path / "printed"
    env = os.environ | {"MGPU_ROOT": str(node.root), "PATH": f"{MGPU.parent}:{os.environ['PATH']}"}
    with printed.open("w") as output:
        process: subprocess.Popen[Any] = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], env=env, stdout=output, stderr=output
        )
    try:
        until(
            lambda: matches(shown, printed.read_text()) or process.poll() is not None,
            f"{command} prints what the page shows",
        )
        assert matches(shown, printed.read_text()), printed.read_text()
    finally:
        process.terminate()
        process.wait()
