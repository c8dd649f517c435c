"""Structures in and out of `jax_function`, static arguments, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jax_kernel import ProblemError
from torch_clerq import jax_function

F32, F64 = torch.float32, torch.float64
ONES = torch.ones(3)


def test_constants_may_decide_the_structure():
    by_rank = jax_function(lambda x, c: {"a": x * 2} if c.ndim == 0 else [x * c.sum()])
    by_kind = jax_function(lambda x, c: (x,) if jnp.issubdtype(jnp.asarray(c).dtype, jnp.integer) else [x])
    for _ in range(2):
        for constant, kind in ((np.ones(()), dict), (np.ones(2), list), (np.ones(()), dict)):
            assert type(by_rank(ONES, constant)) is kind
        for constant, kind in ((2, tuple), (2.0, list), (2, tuple)):
            assert type(by_kind(ONES, constant)) is kind


def test_shapes_may_decide_the_structure():
    rows = jax_function(lambda x: list(x))
    for count in (2, 3, 2):
        found = rows(torch.arange(count, dtype=F32))
        assert [float(x) for x in found] == list(range(count))
        batched = torch.func.vmap(rows)(torch.ones(5, count))
        assert [x.shape for x in batched] == [(5,)] * count


@pytest.mark.parametrize("values", [(1, 1.0, True), (0.0, -0.0), ((1,), (1.0,))])
def test_static_values_that_are_equal_and_not_the_same(values):
    def of(x, kind):
        return x * (20 if type(kind) is int else 30 if isinstance(kind, float) else 10), jnp.asarray(
            repr(kind) == "-0.0"
        )

    ours = jax_function(of, static_argnums=1)
    for value in (*values, *values):
        for found, right in zip(ours(ONES, value), of(jnp.ones(3), value), strict=True):
            np.testing.assert_array_equal(found, right)


def test_whole_numbers_beyond_32_bit():
    assert jax_function(lambda x, n: n - 2**40 + x)(torch.zeros(1, dtype=torch.int64), 2**40 + 5).item() == 5
    assert jax_function(lambda x, n: x + (n - 2**40))(torch.zeros(1), 2**40 + 5).tolist() == [5.0]


def test_methods_and_decorators():
    class Scale:
        factor = 3.0

        @jax_function
        def plain(x):
            return 2 * x

        def by(self, x):
            return self.factor * x

    assert torch.equal(jax_function(Scale().by)(ONES), 3 * ONES)
    assert torch.equal(Scale.plain(ONES), 2 * ONES)
    with pytest.raises(ProblemError, match="static_argnames"):
        Scale().plain()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jax_function(3), "`fn` must be a function, but is 3"),
        (lambda: jax_function(eqx.nn.Linear(2, 2, key=jax.random.key(0))), "`fn` must be hashable"),
        (lambda: jax_function(lambda x: x, static_argnums=1), "has 1"),
        (lambda: jax_function(lambda x: x, static_argnames="y"), "has 'y'"),
        (lambda: jax_function(lambda x, y: x)(ONES, "sin"), "name it in `static_argnames`"),
        (lambda: jax_function(lambda x, y: x, static_argnums=1)(ONES, [1]), "`1` of .* must be hashable"),
        (lambda: jax_function(lambda x: "text")(ONES), "must return arrays of numbers .* but returns str"),
        (lambda: jax_function(lambda x: jax.random.key(0))(ONES), "must return arrays of numbers"),
    ],
)
def test_refused_with_a_sentence(call, message):
    with pytest.raises(ProblemError, match=message):
        call()


def test_an_error_of_the_function_leaves_the_next_call_alone():
    @jax_function
    def picky(x):
        if x.shape[0] == 2:
            raise ValueError("not two")
        return {"double": 2 * x}

    with pytest.raises(ValueError, match="not two"):
        picky(torch.ones(2))
    assert torch.equal(picky(ONES)["double"], 2 * ONES)
