"""What goes in and what comes out."""

import jax.numpy as jnp
import torch

from .base import Wrong, agrees, capability, connected, gradients, random, same

GROUP = "Calls"


@capability(GROUP, "an input that requires grad")
def requires_grad(bridge):
    agrees(bridge(lambda x: jnp.sin(x) * x), lambda x: x.sin() * x, [random(4, grad=True)])


@capability(GROUP, "several inputs, some without grad")
def some_without(bridge):
    x, y, z = random(4, grad=True), random(4, seed=1), random(4, seed=2, grad=True)
    agrees(bridge(lambda x, y, z: x * y + z**2 * x), lambda x, y, z: x * y + z**2 * x, [x, y, z])
    if y.grad is not None:
        raise Wrong("a gradient that was not asked for")


@capability(GROUP, "integer and bool inputs beside float")
def integers(bridge):
    x, index, mask = random(4, grad=True), torch.tensor([3, 1]), torch.tensor([True, False])
    y = bridge(lambda x, i, m: jnp.where(m, x[i], -x[i]))(x, index, mask)
    right = torch.where(mask, x[index], -x[index])
    same(y, right)
    same(gradients(y, [x]), gradients(right, [x]))


@capability(GROUP, "several outputs")
def several(bridge):
    x = random(4, grad=True)
    a, b = bridge(lambda x: (jnp.sin(x), x**2))(x)
    same([a, b], [x.sin(), x**2])
    same(gradients(connected(a) * connected(b), [x]), gradients(x.sin() * x**2, [x]))


@capability(GROUP, "an integer output beside float")
def integer_output(bridge):
    x = random(4, grad=True)
    a, b = bridge(lambda x: (jnp.sin(x), jnp.argmax(x)))(x)
    if b.requires_grad or int(b) != int(x.argmax()):
        raise Wrong(f"{b} where {x.argmax()} is right")
    same(gradients(a, [x]), gradients(x.sin(), [x]))


@capability(GROUP, "outputs left out of the loss")
def left_out(bridge):
    x = random(4, grad=True)
    _, b = bridge(lambda x: (jnp.sin(x), x**2))(x)
    same(gradients(b, [x]), gradients(x**2, [x]))


@capability(GROUP, "nested dict, list and tuple in")
def pytree_in(bridge):
    x, y, z = (random(4, seed=k, grad=True) for k in range(3))
    out = bridge(lambda tree: tree["a"] * tree["b"][0] + jnp.sin(tree["b"][1][0]))({"a": x, "b": [y, (z,)]})
    right = x * y + z.sin()
    same(out, right)
    same(gradients(out, [x, y, z]), gradients(right, [x, y, z]))


@capability(GROUP, "nested dict, list and tuple out")
def pytree_out(bridge):
    x = random(4, grad=True)
    out = bridge(lambda x: {"a": jnp.sin(x), "b": [x**2, (x**3, None)]})(x)
    if out["b"][1][1] is not None:
        raise Wrong("None has become something else")
    same([out["a"], out["b"][0], out["b"][1][0]], [x.sin(), x**2, x**3])
    same(gradients(connected(out["a"]) * connected(out["b"][1][0]), [x]), gradients(x.sin() * x**3, [x]))


@capability(GROUP, "keyword arguments")
def keywords(bridge):
    x, y = random(4, grad=True), random(4, seed=1, grad=True)
    out = bridge(lambda x, *, scale: x * scale**2)(x, scale=y)
    same(out, x * y**2)
    same(gradients(out, [x, y]), gradients(x * y**2, [x, y]))


@capability(GROUP, "a number as an argument")
def number(bridge):
    x, fn = random(4, grad=True), bridge(lambda x, k: jnp.sin(x) * k)
    for k in (0.5, 2):
        out = fn(x, k)
        same(out, x.sin() * k)
        same(gradients(out, [x]), gradients(x.sin() * k, [x]))


@capability(GROUP, "None as an argument")
def none(bridge):
    x = random(4, grad=True)
    fn = bridge(lambda x, y: jnp.sin(x) if y is None else x * y)
    out = fn(x, None)
    same(gradients(out, [x]), gradients(x.sin(), [x]))


@capability(GROUP, "a static argument")
def static(bridge):
    x = random(4, grad=True)
    fn = bridge(lambda x, kind: jnp.sin(x) if kind == "sine" else x**2, static_argnums=(1,))
    for kind, right in (("sine", x.sin()), ("square", x**2)):
        out = fn(x, kind)
        same(out, right)
        same(gradients(out, [x]), gradients(right, [x]))


@capability(GROUP, "no_grad and inference_mode")
def no_grad(bridge):
    x, fn = random(4, grad=True), bridge(jnp.sin)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = fn(x)
        if y.requires_grad:
            raise Wrong(f"a graph within {mode.__name__}")
        same(y, x.sin())


@capability(GROUP, "no new trace in 100 calls")
def traces(bridge):
    count = []

    def fn(x):
        count.append(x)
        return jnp.sin(x) * x

    of = bridge(fn)
    for k in range(100):
        x = random(4, seed=k, grad=True)
        gradients(of(x), [x])
        if k == 2:
            after_three = len(count)
    if len(count) > after_three:
        raise Wrong(f"{len(count)} traces")


@capability(GROUP, "anomaly mode names the node")
def anomaly(bridge):
    x = torch.zeros(3, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        y = bridge(lambda x: jnp.sqrt(x) * 0)(x)
        try:
            y.backward(torch.ones(3))
        except RuntimeError as error:
            if "returned nan values" in str(error):
                return
            raise
    raise Wrong("not a number, and no error")
