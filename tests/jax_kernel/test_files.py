"""Files stay whole: on a full disk, in a folder that cannot be written, and when the process is killed."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jax_kernel import Problem, ProblemError
from jax_kernel.files import read_json, write
from tests.conftest import ROOT, two_level

resource = pytest.importorskip("resource", reason="only POSIX limits the size of files")


def many_samples(**changed):
    """A problem whose file has some 100 kB."""
    times = [k / 1000 for k in range(5000)]
    return two_level(envelope="intp", args={"tlist": times, "ylist": [0.5] * 5000}, **changed)


@pytest.fixture
def small_disk():
    """No file may have more than 4 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_problem(tmp_path, small_disk):
    path = tmp_path / "problem.json"
    two_level().to_json(path)
    before = path.read_bytes()
    with pytest.raises(OSError, match="File too large"):
        many_samples().to_json(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_each_step_of_writing_may_fail(step, tmp_path, monkeypatch):
    path = tmp_path / "note.txt"
    path.write_text("old")

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step != "write":
        monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left on device"):
        write(path, full if step == "write" else lambda file: file.write(b"new"))
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(OSError, match=r"Not a directory|exists"):
        two_level().to_json(tmp_path / "folder" / "problem.json")
    assert (tmp_path / "folder").read_text() == "a file"
    with pytest.raises(IsADirectoryError):
        two_level().to_json(tmp_path)


def test_links_are_followed_and_devices_stay(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real" / "problem.json")
    two_level().to_json(link)
    assert link.is_symlink()
    assert Problem.from_json(tmp_path / "real" / "problem.json") == two_level()
    two_level().to_json(os.devnull)
    assert not Path(os.devnull).is_file()


def test_a_name_as_long_as_names_may_be(tmp_path):
    path = tmp_path / ("n" * 250 + ".json")
    two_level().to_json(path)
    assert list(tmp_path.iterdir()) == [path]


def test_two_threads_write_one_file(tmp_path):
    path, problems, wrong = tmp_path / "problem.json", [two_level(rate=1.0 + k) for k in range(2)], []

    def work(problem):
        for _ in range(50):
            problem.to_json(path)
            if Problem.from_json(path) not in problems:
                wrong.append(path.read_text())

    threads = [threading.Thread(target=work, args=(problem,)) for problem in problems]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert list(tmp_path.iterdir()) == [path]


WRITER = """
import sys
from pathlib import Path
import torch
from tests.jax_kernel.test_files import many_samples
from torch_clerq import checkpoint
folder, k = Path(sys.argv[1]), 0
problems = [many_samples(rate=float(rate)) for rate in (1, 2)]
while True:
    problems[k % 2].to_json(folder / "problem.json")
    checkpoint.save(folder / "run.pt", {"kind": {}, "values": torch.full((100_000,), float(k))})
    k += 1
    print(k, flush=True)
"""


def killed_while_writing(folder: Path, times: int) -> int:
    """Kill a process that writes so many times; how often the files were whole afterwards."""
    import torch

    from torch_clerq import checkpoint

    whole = 0
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for k in range(times):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, env=environment)
        for _ in range(2 + k):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        values = checkpoint.load(folder / "run.pt")["values"]
        content = json.loads((folder / "problem.json").read_text())
        whole += bool(torch.all(values == values[0])) and content["system"]["decays"][0]["rate"] in (1.0, 2.0)
    return whole


def test_kill_in_the_middle_leaves_whole_files(tmp_path):
    assert killed_while_writing(tmp_path, 2) == 2


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"t_max": 1.0, "t_max": 2.0}', 'must have each key once, but has "t_max" twice.'),
        (b'{"t_max": NaN}', "must have finite numbers only, but has NaN."),
        (b"\xff\xfe", "must be JSON, but is not: 'utf-8' codec"),
        (b"[" * 100_000, "must be JSON, but is not: "),
        (b"9" * 5000, "must be JSON, but is not: Exceeds the limit"),
        (b"[]", "must hold one JSON object, but holds []."),
    ],
)
def test_what_is_no_json_object_is_refused_in_one_line(content, text, tmp_path):
    path = tmp_path / "problem.json"
    path.write_bytes(content)
    with pytest.raises(ProblemError) as caught:
        read_json(path)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("jax_kernel.files.LARGEST", 2**20)
    with pytest.raises(ProblemError, match="must have at most 1 MiB, but has more"):
        read_json("/dev/zero")
