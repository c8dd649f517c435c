"""The compilation cache: private, shared by processes, and no obstacle where it is broken."""

import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.conftest import CACHE, ROOT
from torch_clerq import CacheError, cache, use_compilation_cache
from torch_clerq.cache import _check_private
from torch_clerq.cli.console import Console

PROGRAM = """
import json, logging, sys
logging.basicConfig(level=logging.DEBUG, handlers=[logging.NullHandler()])
found = []
class Count(logging.Handler):
    def emit(self, record):
        found.append(record.getMessage())
logging.getLogger("jax._src.compiler").addHandler(Count())
import jax, jax.numpy as jnp
from torch_clerq import use_compilation_cache
if sys.argv[1] == "late":
    jax.jit(lambda x: x + 1)(1.0)
folder = use_compilation_cache(sys.argv[2] if len(sys.argv) > 2 else None)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
value = jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))
hits = sum("cache hit" in text for text in found)
print(json.dumps({"folder": str(folder), "hits": hits, "value": float(value[0, 0])}))
"""


def run(tmp_path, *arguments, **environment):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    kept |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)} | environment
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_second_process_finds_what_the_first_has_compiled(tmp_path):
    first, second = run(tmp_path, "early"), run(tmp_path, "late")
    folder = Path(first["folder"])
    assert folder.parent == tmp_path / "cache" / "torch_clerq"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert first["hits"] == 0
    assert second["hits"] > 0
    assert second["value"] == first["value"]


def test_a_corrupt_cache_is_passed_over(tmp_path):
    first = run(tmp_path, "early", tmp_path / "mine")
    entries = [path for path in Path(first["folder"]).rglob("*-cache")]
    assert entries
    for path in entries:
        path.write_bytes(b"not a program")
    assert run(tmp_path, "early", tmp_path / "mine")["value"] == first["value"]


def test_a_cache_that_jax_has_been_given_stays(tmp_path):
    given = tmp_path / "given"
    assert run(tmp_path, "early", JAX_COMPILATION_CACHE_DIR=str(given))["folder"] == str(given)
    assert not (tmp_path / "cache").exists()


def test_folders_that_others_could_fill_are_refused(tmp_path, monkeypatch):
    tmp_path.chmod(0o770)
    with pytest.raises(CacheError, match=r"others may write to .*: chmod 700 it, or give another `folder`\.$"):
        _check_private(tmp_path)
    tmp_path.chmod(0o755)
    _check_private(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(CacheError, match=r"must belong to the user.* belongs to user number \d+: give another"):
        _check_private(tmp_path)


@pytest.mark.parametrize("folder", [5, b"/tmp/cache", "/tmp/a\0b", "~nobody-of-this-name/cache", "", None])
def test_a_folder_that_cannot_be_one_is_refused_in_words(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_jaxs_own", lambda: None)
    if folder is None:
        folder = tmp_path / "file"
        folder.write_text("")
    with pytest.raises(CacheError, match="folder"):
        use_compilation_cache(folder)


def test_another_cache_of_jax_is_not_taken_away(tmp_path):
    with pytest.raises(CacheError, match="must be left out where JAX has a cache already"):
        use_compilation_cache(tmp_path)


def test_a_name_that_jax_cannot_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_jaxs_own", lambda: None)
    with pytest.raises(CacheError, match="UTF-8"):
        use_compilation_cache(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))


def test_this_process_keeps_its_own():
    assert use_compilation_cache() == Path(CACHE)


@pytest.mark.parametrize("usable", [True, False])
def test_the_command_line_keeps_programs_by_default(tmp_path, usable):
    """And goes on without, where it cannot."""
    problem = {
        "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
                   "fields": [{"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "gaussian",
                               "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}}]},
        "t_min": -4.0, "t_max": 8.0, "t_steps": 60, "z_steps": 4, "interaction_strengths": [1.0],
    }  # fmt: skip
    (tmp_path / "thin.json").write_text(json.dumps(problem))
    if not usable:
        (tmp_path / "cache").write_text("no folder")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    kept |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "torch_clerq", "solve", "thin.json", "--tol", "1e-2"]
    for options in ([], ["--no-cache"]) if usable else ([],):
        done = subprocess.run([*command, *options], env=kept, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert ("compiled programs are not kept" in done.stderr) is not usable
    if usable:
        assert list((tmp_path / "cache" / "torch_clerq").rglob("*-cache"))


SMALL = {
    "system": {"num_states": 2, "decays": [{"rate": 1.0, "channels": [[0, 1]]}],
               "fields": [{"coupled_levels": [[0, 1]], "rabi_freq": 1e-3, "rabi_freq_t_func": "gaussian",
                           "rabi_freq_t_args": {"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}}]},
    "t_min": -4.0, "t_max": 8.0, "t_steps": 60, "z_steps": 4, "interaction_strengths": [1.0],
}  # fmt: skip


def test_damaged_programs_are_deleted_once(tmp_path):
    whole, empty, cut, other = (tmp_path / f"{name}-cache" for name in ("whole", "empty", "cut", "other"))
    packed = zlib.compress(os.urandom(1000))
    for path, content in ((whole, packed), (empty, b""), (cut, packed[:500]), (other, b"not a program")):
        path.write_bytes(content)
    with pytest.warns(UserWarning, match="3 compiled programs were damaged and deleted, and will be compiled anew"):
        cache._delete_damaged(tmp_path)
    cache._delete_damaged(tmp_path)
    assert list(tmp_path.glob("*-cache")) == [whole]
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_is_whole", lambda content: read.append(content) or True)
        os.utime(whole, (1, 1))
        cache._delete_damaged(tmp_path)
    assert not read  # an entry is looked at once


def test_of_a_cache_in_trouble_one_warning_is_enough(capsys):
    console = Console()
    for verb, name in (("writing", "a"), ("writing", "b"), ("reading", "c")):
        console.warn(f"Error {verb} persistent compilation cache entry for 'jit_{name}': OSError: No space left.")
    assert capsys.readouterr().err.splitlines() == [
        "torch-clerq: warning: compiled programs cannot be kept, and the run goes on without (OSError: No space left).",
        "torch-clerq: warning: compiled programs cannot be read, and the run goes on without (OSError: No space left).",
    ]


def solving(tmp_path, *options, **environment):
    (tmp_path / "thin.json").write_text(json.dumps(SMALL))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    kept |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")} | environment
    command = [sys.executable, "-m", "torch_clerq", "solve", "thin.json", "--tol", "1e-2", *options]
    return subprocess.Popen(command, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)


def test_two_processes_fill_one_cache_and_damage_is_healed(tmp_path):
    both = [solving(tmp_path, "--output", name) for name in "ab"]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    entries = sorted((tmp_path / "cache" / "torch_clerq").rglob("*-cache"))
    assert entries
    assert all(cache._is_whole(entry.read_bytes()) for entry in entries)
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:100])
    third = solving(tmp_path, "--output", "c")
    _, err = third.communicate(timeout=300)
    assert third.returncode == 0
    assert len(re.findall("damaged|cannot be read", err)) == 1
    assert all(cache._is_whole(entry.read_bytes()) for entry in entries if entry.exists())


def test_no_cache_leaves_a_cache_alone_that_jax_was_given(tmp_path):
    given = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "given"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    process = solving(tmp_path, "--no-cache", "--output", "a", **given)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert not list((tmp_path / "given").rglob("*-cache"))
    assert not (tmp_path / "cache" / "torch_clerq").exists()
