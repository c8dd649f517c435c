"""torch-clerq info: versions, devices, caches."""

import argparse
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import jax
import torch

from ..cache import LARGEST, cache_folder
from .console import Console
from .results import versions

OPTIONAL = ("matplotlib", "clerq")


def add_options(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace, console: Console) -> int:
    content = _content()
    for topic, facts in content.items():
        console.say(topic)
        width = max(map(len, facts))
        for name, value in facts.items():
            console.say(f"  {name.ljust(width)}  {value}")
    console.result(content)
    return 0


def _content() -> dict[str, dict[str, Any]]:
    return {
        "versions": versions() | {name: _optional(name) for name in OPTIONAL},
        "devices": {
            "processor": f"{platform.machine()}, {os.cpu_count()} cores",
            "torch": f"{_cuda()}, {torch.get_num_threads()} threads",
            "jax": ", ".join(f"{device.platform}:{device.id}" for device in jax.devices()),
        },
        "compiled programs": _cache(),
    }


def _optional(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed" + (" (figures: pip install 'torch_clerq[plot]')" if package == "matplotlib" else "")


def _cuda() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return ", ".join(torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count()))


def _cache() -> dict[str, Any]:
    folder = cache_folder()
    files = [path for path in Path(folder).glob("**/*") if path.is_file()] if Path(folder).is_dir() else []
    size = sum(path.stat().st_size for path in files)
    return {
        "folder": str(folder),
        "size": f"{size / 2**20:.1f} MiB of {LARGEST / 2**20:.0f} at most",
        "files": len(files),
    }
