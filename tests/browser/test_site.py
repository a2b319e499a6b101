"""The site in a headless browser: a search leads to the page that explains, and nothing comes from another host."""

import functools
import json
import queue
import re
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPECTED = {  # the first page that the search shows
    "pip install": "/install/",
    "truncated": "/conventions/",
    "last_values": "/conventions/",
    "done": "/conventions/",
    "advantage": "/conventions/",
    "lambda": "/which-arguments/",
    "time limit": "/why-does-my-ppo-not-learn/",
    "GRPO": "/tokens/",
    "numba": "/backends/",
    "speed": "/performance/",
}
# The start page takes a query from its address. This page opens it with one query after another, and posts the results.
SEARCHES = """<!doctype html><meta charset="utf-8"><body><script>
const shown = (query) => new Promise((done) => {
  const frame = document.createElement("iframe");
  const look = () => {
    const found = frame.contentDocument.querySelectorAll(".md-search-result__item > a");
    found.length ? done(Array.from(found, (each) => each.pathname)) : setTimeout(look, 20);
  };
  frame.src = `/index.html?q=${encodeURIComponent(query)}`;
  frame.onload = look;
  document.body.replaceChildren(frame);
});
(async () => {
  const answers = {};
  for (const query of %s) answers[query] = await shown(query);
  fetch("/answers", { method: "POST", body: JSON.stringify(answers) });
})();
</script>"""


class Handler(SimpleHTTPRequestHandler):
    answers: queue.Queue

    def do_POST(self):
        self.answers.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


def test_the_search_and_that_nothing_comes_from_another_host(site, browser, tmp_path):
    (site / "searches.html").write_text(SEARCHES % json.dumps([*EXPECTED]), encoding="utf-8")
    Handler.answers = queue.Queue()
    log = tmp_path / "net.json"
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_port}"
        opened = [*browser, f"--log-net-log={log}", "--remote-debugging-port=0", f"{origin}/searches.html"]
        running = subprocess.Popen(opened, stderr=subprocess.DEVNULL)
        try:
            answers = json.loads(Handler.answers.get(timeout=120))
        finally:
            running.terminate()
            running.wait()
            server.shutdown()

    assert {query: pages[0] for query, pages in answers.items()} == EXPECTED

    # A line for each event; the browser that is stopped may leave the last one incomplete.
    asked = {*re.findall(rf'"initiator":"{origin}".*"url":"([^"]*)"', log.read_text("utf-8"))}
    assert f"{origin}/search/search_index.json" in asked
    assert not {url for url in asked if not url.startswith(origin)}


def test_every_page_says_what_it_is_about(site):
    heads = {page: page.read_text("utf-8").partition("</head>")[0] for page in site.rglob("index.html")}
    for kind in ("<title>(.*)</title>", '<meta name="description" content="(.*)">'):
        found = [re.findall(kind, head) for head in heads.values()]
        assert all(len(each) == 1 for each in found)
        assert len({text for (text,) in found}) == len(heads), kind
    for head in heads.values():
        (card,) = re.findall('<meta property="og:image" content="https://[^"]*/(assets/.*)">', head)
        assert (site / card).is_file()
