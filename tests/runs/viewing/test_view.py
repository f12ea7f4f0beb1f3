"""`anchorscope view`: what is found and told, and that nothing but the files of those folders is given out."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path

import pytest

from anchorscope.artefacts.run_folder import open_run
from anchorscope.artefacts.sealed_folder import sealed
from anchorscope.artefacts.step import StepResult, records
from anchorscope.comparing.compare import compare
from anchorscope.files import locked
from anchorscope.finished import open_finished
from anchorscope.report import comparison
from anchorscope.report.answer_card import answer_card
from anchorscope.report.checks import read
from anchorscope.report.findings import nested_auc, share_at
from anchorscope.viewing import ViewServer
from commands import invoke
from compared_runs import write_run
from report_shares import run_with_shares
from report_synthetic import make_findings

SECRET = "nobody's business"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of everything, and with what must not get out."""
    home = tmp_path_factory.mktemp("home")
    (home / "secret.txt").write_text(SECRET)
    runs = home / "runs"
    older = write_run(runs / "older", make_findings(("popqa",)))
    findings = run_with_shares(datasets=("popqa",))
    folder = str(runs / "deep" / "new & <b>")
    card = answer_card(replace(findings, folder=folder), read(findings))
    newer = write_run(
        runs / "deep" / "new & <b>", findings, answer=json.dumps(card.record())
    )
    (newer / "report.html").write_text("<!doctype html><title>the report</title>")
    (newer / ".lock").write_text(SECRET)
    (newer / "figures").mkdir()
    (newer / "figures" / "a.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'/>"
    )
    (newer / "link.html").symlink_to(home / "secret.txt")
    (newer / "up").symlink_to(home)
    with open_run(runs / "half") as folder:
        StepResult(folder, "popqa/answers", (), records(list[int]), lambda: [1]).value  # noqa: B018
        folder.write_recipe('model = "small"\ndatasets = ["popqa"]\n')
    (runs / "notes").mkdir()
    (runs / "notes" / "mine.html").write_text(SECRET)
    for name, content in {
        "both/comparison.json": {"runs": [{"run": "a"}, {"run": "b"}]},
        "det/detection.json": {
            "model": "small",
            "bundles": ["auto"],
            "trained_on": ["popqa"],
            "warnings": ["few"],
        },
        "broken/comparison.json": [],
    }.items():
        (runs / name).parent.mkdir()
        (runs / name).write_text(json.dumps(sealed(content) if content else content))
    for age, folder in enumerate(
        (newer, runs / "both", runs / "det", runs / "half", older)
    ):
        for file in folder.glob("*.json"):
            os.utime(file, (1_700_000_000 - 1000 * age,) * 2)
    return runs


def compare_without_figures(paths: Sequence[Path], out: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "save_all", lambda *_: None)
        compare(paths, out=out, allow="all")


ask = partial(invoke, "view")


def test_everything_is_listed_newest_first_with_its_numbers(runs: Path) -> None:
    listed = json.loads(ask(runs, "--json").stdout)
    assert listed["folder"] == str(runs)
    found = {one["name"]: one for one in listed["found"]}
    assert list(found)[1:] == [
        "deep/new & <b>",
        "both",
        "det",
        "half",
        "older",
    ]  # the broken one was just made
    new = found["deep/new & <b>"]
    assert (new["kind"], new["finished"], new["page"]) == ("run", True, "report.html")
    assert new["answer"] == json.loads(
        (runs / "deep" / "new & <b>" / "answer.json").read_text()
    )
    (numbers,) = new["numbers"]
    own = open_finished(runs / "deep" / "new & <b>")
    assert numbers["auc"] == pytest.approx(nested_auc(own.findings, "popqa").value)
    assert numbers["together"] == pytest.approx(
        share_at(own.findings, "popqa", part="together").value
    )
    assert numbers["random"] == pytest.approx(
        share_at(own.findings, "popqa", "random").value
    )
    assert numbers["controls"] in own.card.trust.reason
    half = found["half"]
    assert (half["finished"], half["answer"], half["about"]) == (False, None, "popqa")
    assert (
        half["command"]
        == f"anchorscope run {runs / 'half' / 'recipe.toml'} --out {runs / 'half'}"
    )
    assert half["lines"] == ["Not finished: 1 step is done."]
    with locked(runs / "half"):
        (half,) = json.loads(ask(runs / "half", "--json").stdout)["found"]
    assert (half["lines"], half["command"]) == (["Running: 1 step is done."], None)
    assert found["broken"]["lines"][0].startswith("It cannot be read:")


def test_a_moved_run_is_listed_where_it_is(tmp_path: Path) -> None:
    findings = run_with_shares(datasets=("popqa",))
    card = answer_card(replace(findings, folder=str(tmp_path / "old")), read(findings))
    write_run(tmp_path / "old", findings, answer=json.dumps(card.record())).rename(
        tmp_path / "new"
    )
    text = ask(tmp_path, "--json").stdout
    assert str(tmp_path / "new") in text
    assert str(tmp_path / "old") not in text


def mistake(*arguments: object) -> str:
    result = ask(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return str(line.removeprefix("error: "))


def test_mistakes(runs: Path, tmp_path: Path) -> None:
    assert mistake(tmp_path / "none").startswith("There is no folder")
    assert "There is no run below" in mistake(tmp_path, "--no-browser")
    assert "There is no run below" in mistake(tmp_path, "--json")
    assert "anchorscope run --limit 500 --out" in mistake(tmp_path)
    assert "The folder's name is empty" in mistake("")
    assert "--port" in mistake(runs, "--port", "99999")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"Cannot listen on port {port}" in mistake(
            runs, "--port", port, "--no-browser"
        )


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[ViewServer]:
    with ViewServer(runs, compare=compare_without_figures) as server:
        serving = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}
        )
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def get(
    server: ViewServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, HTTPMessage, str]:
    """The path as it is written: no client tidies it up."""
    connection = HTTPConnection(*server.server_address[:2], timeout=10)  # type: ignore[arg-type]
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read().decode()
    connection.close()
    return found


def test_the_list_escapes_names_and_may_run_nothing(server: ViewServer) -> None:
    status, headers, text = get(server, "/")
    assert status == 200
    assert "new &amp; &lt;b&gt;" in text
    assert "<b>" not in text
    assert 'href="/files/deep/new%20%26%20%3Cb%3E/report.html"' in text
    assert "script-src" not in headers["Content-Security-Policy"]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_order_and_filter_are_in_the_address(server: ViewServer) -> None:
    def models(address: str) -> list[str]:
        return re.findall(
            r'value="(older|deep/[^"]*)" aria-label', get(server, address)[2]
        )

    assert models("/") == ["deep/new &amp; &lt;b&gt;", "older"]
    assert models("/?sort=changed&down=0") == ["older", "deep/new &amp; &lt;b&gt;"]
    assert models("/?sort=together&down=0") == ["deep/new &amp; &lt;b&gt;", "older"], (
        "what was not measured is last"
    )
    assert models("/?q=older") == ["older"]
    assert models("/?sort=nonsense&q=popqa") == models("/")
    assert "2 more do not match" in get(server, "/?q=nothing")[2]


def test_ticked_runs_are_compared(server: ViewServer) -> None:
    status, headers, _ = get(server, "/compare?run=older&run=deep/new%20%26%20%3Cb%3E")
    assert status == 303
    status, _, text = get(server, headers["Location"])
    assert status == 200
    assert "anchorscope comparison" in text
    assert get(server, "/compare?run=older")[0] == 400
    assert get(server, "/compare?run=older&run=../secret.txt")[0] == 400
    refused = {"Sec-Fetch-Site": "cross-site"}
    assert (
        get(server, "/compare?run=older&run=deep/new%20%26%20%3Cb%3E", **refused)[0]
        == 403
    )


def test_files_of_runs_are_given_out_with_their_types(server: ViewServer) -> None:
    status, headers, text = get(server, "/files/deep/new%20%26%20%3Cb%3E/report.html")
    assert (status, headers["Content-Type"]) == (200, "text/html")
    assert "the report" in text
    folder = "/files/deep/new%20%26%20%3Cb%3E"
    assert get(server, f"{folder}/figures/a.svg")[1]["Content-Type"] == "image/svg+xml"
    assert (
        "script-src"
        not in get(server, f"{folder}/figures/a.svg")[1]["Content-Security-Policy"]
    )
    assert get(server, "/files/older/curves.csv")[1]["Content-Type"] == "text/csv"
    assert get(server, "/files/half/recipe.toml")[0] == 200
    status, headers, text = get(server, "/files/older/recipe.toml", "HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    "path",
    [
        "/files/../secret.txt",
        "/files/older/%2e%2e%2f%2e%2e%2fsecret.txt",
        "/files/notes/mine.html",
        "/files/deep/new%20%26%20%3Cb%3E/link.html",
        "/files/deep/new%20%26%20%3Cb%3E/up/secret.txt",
        "/files/deep/new%20%26%20%3Cb%3E/.lock",
        "/files/",
        "/files/older/recipe.toml%00.html",
        "/files/%ff",
        "/files/" + "a" * 5000,
    ],
)
def test_nothing_else_is_given_out(server: ViewServer, path: str) -> None:
    status, _, text = get(server, path)
    assert status in (400, 404)
    assert SECRET not in text
    assert "root:" not in text


def test_other_names_and_methods_are_refused(server: ViewServer) -> None:
    assert get(server, "/", Host="evil.example")[0] == 403
    assert get(server, "/", Host=f"localhost:{server.server_address[1]}")[0] == 200
    assert get(server, "/", "POST")[0] == 501
    assert get(server, "/files/older/recipe.toml", "DELETE")[0] == 501


def test_ctrl_c_ends_it_quietly(runs: Path) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
        "from anchorscope.cli.main import main\n"
        f"sys.argv = ['anchorscope', 'view', {str(runs)!r}, '--no-browser']; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True
    ) as viewing:
        assert viewing.stderr is not None
        while "http://127.0.0.1:" not in (line := viewing.stderr.readline()):
            assert line, "it ended before it listened"
        port = int(re.findall(r"127.0.0.1:(\d+)", line)[0])
        with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
        viewing.send_signal(signal.SIGINT)
        assert "Traceback" not in viewing.stderr.read()
    assert viewing.returncode == 0
