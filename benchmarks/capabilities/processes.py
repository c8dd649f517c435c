"""Threads and processes."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import torch

from jax_kernel import errors

from .base import capability, gradients, random, same

GROUP = "Threads and processes"


def jax_map(x):
    return jnp.cumsum(jnp.sin(x))


def torch_map(x):
    return x.sin().cumsum(0)


@capability(GROUP, "two threads, two precisions")
def two_threads(bridge):
    start, fn = threading.Barrier(2), bridge(jax_map)

    def work(dtype):
        start.wait()
        for k in range(50):
            x = random(40, dtype=dtype, seed=k, grad=True)
            y = fn(x)
            same(y, torch_map(x))
            same(gradients(y, [x]), gradients(torch_map(x), [x]))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (torch.float32, torch.float64)))


@capability(GROUP, "backward on another thread")
def other_thread(bridge):
    x = random(40, dtype=torch.float64, grad=True)
    y = bridge(jax_map)(x)
    same(y, torch_map(x))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(gradients, y, [x]).result()
    same(found, gradients(torch_map(x), [x]), rtol=1e-12)


def _in_child(fn, x, pipe):
    torch.set_num_threads(1)  # torch's own threads do not survive a fork either
    try:
        pipe.send(("value", fn(x).tolist()))
    except Exception as error:
        pipe.send((type(error).__name__, str(error)))


@capability(GROUP, "a forked worker: right or refused, never a hang")
def forked(bridge):
    fn = bridge(lambda x: jnp.sin(x) @ x)  # a shape that the parent has not compiled, and work for several threads
    fn(random(200, 200))
    x = random(300, 300)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_in_child, args=(fn, x, there), daemon=True)
    child.start()
    try:
        if not here.poll(20):
            raise TimeoutError("the worker hangs")
        kind, content = here.recv()
    finally:
        child.kill()
        child.join()
    if kind == "value":
        same(torch.tensor(content), x.sin() @ x)
    elif not hasattr(errors, kind):
        raise RuntimeError(f"{kind}: {content}")


def _in_spawned(bridge, pipe):
    pipe.send(bridge(jax_map)(random(4)).tolist())


@capability(GROUP, "a spawned worker")
def spawned(bridge):
    same(bridge(jax_map)(random(4)), torch_map(random(4)))
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=_in_spawned, args=(bridge, there), daemon=True)
    child.start()
    try:
        if not here.poll(50):
            raise TimeoutError("the worker hangs")
        same(torch.tensor(here.recv()), torch_map(random(4)))
    finally:
        child.kill()
        child.join()
