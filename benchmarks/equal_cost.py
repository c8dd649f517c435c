"""Which optimiser finds the best memory for the same cost?

Usage: python -m benchmarks.equal_cost [--quick]

The Λ memory at optical depth 25, retrieved forward, 44 coefficients, a budget of 550 forward evaluations of which a
gradient is charged its measured price; three seeds each. Adam and L-BFGS run in `torch_clerq.fit`, L-BFGS-B and
differential evolution are SciPy's, CMA-ES is `cma`; all minimise the logarithm of the efficiency. A second table starts
where 1e-8 is retrieved, with a weak control and an early pulse.
"""

import contextlib
import math
import time as clock

import cma
import numpy as np
import torch
from scipy.optimize import differential_evolution, minimize
from scipy.stats import qmc

from torch_clerq import fit
from torch_clerq.limits import memory_limit

from . import measure
from .memory_designs import BUDGET, Forward, loss, price, verified
from .tables import markdown

DEPTH = 25.0
PROBE, COUNT = 16, 44
LOW, HIGH = np.repeat([0.0, -2.0], [PROBE, COUNT - PROBE]), np.repeat([1.0, 2.0], [PROBE, COUNT - PROBE])
"""The box of the methods that need one: of the random starts, with twice as much room for the control."""


class Spent(Exception):
    """The budget is spent."""


class Account:
    """The objective as a function of a vector, with what it has cost and the best so far."""

    def __init__(self, seed: int, cost: float, budget: float, dark: bool = False):
        self.model, self.cost, self.budget, self.spent = Forward(DEPTH, seed), cost, budget, 0.0
        if dark:
            darken(self.model)
        self.best, self.at, self.curve = math.inf, self.vector(), []

    def vector(self) -> np.ndarray:
        return torch.nn.utils.parameters_to_vector(self.model.parameters()).detach().numpy().copy()

    def value(self, x: np.ndarray) -> float:
        """The objective, charged as one."""
        torch.nn.utils.vector_to_parameters(torch.as_tensor(x), self.model.parameters())
        with torch.no_grad():
            value = float(loss(self.model))
        self._charge(x, value, 1.0)
        return value

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient, charged the price of a gradient."""
        torch.nn.utils.vector_to_parameters(torch.as_tensor(x), self.model.parameters())
        self.model.zero_grad()
        value = loss(self.model)
        value.backward()
        self._charge(x, value.item(), self.cost)
        return value.item(), torch.cat([p.grad.flatten() for p in self.model.parameters()]).numpy()

    def _charge(self, x: np.ndarray, value: float, cost: float) -> None:
        if self.spent + cost > self.budget:
            raise Spent
        self.spent += cost
        if value < self.best:
            self.best, self.at = value, np.array(x)
        self.curve.append([self.spent, math.exp(-self.best)])


def darken(model: Forward) -> None:
    """A start of which some 1e-8 is retrieved."""
    probe, control = model.parameters()
    with torch.no_grad():
        probe[8:] = 0
        control.sub_(2.0)


def by_fit(account: Account, seed: int, optimizer, **options) -> None:
    """One of torch's optimisers."""
    most = int(account.budget / account.cost)

    def count(at) -> bool:
        account.curve.append([at.evaluations * account.cost, math.exp(-at.best)])
        return at.evaluations >= most

    found = fit(
        account.model, loss, steps=most, optimizer=optimizer, progress=False, verify=False, guard=False,
        callbacks=[count], **options,
    )  # fmt: skip
    account.best, account.at = found.value, account.vector()


def adam(account: Account, seed: int) -> None:
    make = lambda parameters: torch.optim.Adam(parameters, lr=0.2, betas=(0.8, 0.95))  # noqa: E731
    by_fit(account, seed, make, scheduler="cosine")


def lbfgs(account: Account, seed: int) -> None:
    by_fit(account, seed, "lbfgs")


def lbfgsb(account: Account, seed: int) -> None:
    minimize(account.value_and_gradient, account.vector(), jac=True, method="L-BFGS-B", options={"maxcor": 50})


def cma_es(account: Account, seed: int) -> None:
    options = {"seed": seed + 1, "verbose": -9, "maxfevals": 10 * BUDGET}
    cma.fmin2(account.value, account.vector(), 0.3, options)


def evolution(account: Account, seed: int) -> None:
    differential_evolution(
        account.value, list(zip(LOW, HIGH, strict=True)), popsize=1, maxiter=10 * BUDGET, rng=seed, polish=False
    )


def hypercube(account: Account, seed: int) -> None:
    for x in qmc.scale(qmc.LatinHypercube(COUNT, rng=seed).random(BUDGET), LOW, HIGH):
        account.value(x)


METHODS = {
    "Adam": adam,
    "L-BFGS": lbfgs,
    "L-BFGS-B (SciPy)": lbfgsb,
    "CMA-ES": cma_es,
    "differential evolution": evolution,
    "Latin hypercube": hypercube,
}
REFERENCE = {
    "Adam": "0.459, 0.439, 0.447",
    "L-BFGS-B (SciPy)": "0.000, 0.462, 0.000",
    "CMA-ES": "0.399, 0.385, 0.404",
    "differential evolution": "0.315, 0.336, 0.299",
    "Latin hypercube": "0.250, 0.259, 0.232",
}
"""What clerq's authors published of their own study (version 0.14), with other starts and a price of 6.5."""


def run(method, seed: int, cost: float, budget: float, dark: bool = False) -> dict:
    """One method from one seed."""
    begin = clock.perf_counter()
    account = Account(seed, cost, budget, dark)
    with torch.no_grad():
        start = float(loss(account.model).neg().exp())
    with contextlib.suppress(Spent):
        method(account, seed)
    torch.nn.utils.vector_to_parameters(torch.as_tensor(account.at), account.model.parameters())
    seconds = clock.perf_counter() - begin
    return {
        "start": start,
        "efficiency": math.exp(-account.best),
        "verified": verified(Forward, DEPTH, account.model),
        "spent": account.curve[-1][0],
        "curve": account.curve[:: max(1, len(account.curve) // 100)] + account.curve[-1:],
        "seconds": seconds,
    }


def table(results: dict) -> str:
    """Each method and seed."""
    of = results["of"]
    rows = []
    for name, runs in of["runs"].items():
        values = ", ".join(f"{one['verified']:.4f}" for one in runs)
        rows.append([name, values, REFERENCE.get(name, "–"), f"{max(one['seconds'] for one in runs):.1f} s"])
    first = markdown(["method", "verified, seeds 0, 1, 2", "published of the reference", "longest"], rows)
    rows = [
        [str(seed), f"{one['start']:.1e}", f"{one['verified']:.5f}", f"{other['verified']:.5f}"]
        for seed, (one, other) in enumerate(zip(of["dark"]["Adam"], of["dark"]["L-BFGS"], strict=True))
    ]
    second = markdown(["seed", "start retrieves", "Adam", "L-BFGS"], rows)
    about = f"A gradient costs {of['price']:.2f} forward evaluations; the limit is {of['limit']:.5f}."
    return f"{about}\n\n{first}\n\nFrom dark starts:\n\n{second}"


def main() -> None:
    quick = measure.begin(__doc__)
    model = Forward(DEPTH)
    loss(model).backward()
    cost = price(model, quick)
    budget = 60 if quick else BUDGET
    seeds = range(1 if quick else 3)
    runs = {name: [run(method, seed, cost, budget) for seed in seeds] for name, method in METHODS.items()}
    dark_seeds = range(1 if quick else 5)
    dark = {name: [run(METHODS[name], s, cost, budget, True) for s in dark_seeds] for name in ("Adam", "L-BFGS")}
    results = {"of": {"price": cost, "limit": memory_limit(DEPTH), "runs": runs, "dark": dark}}
    print(table(results))
    measure.write("equal_cost", results, quick)


if __name__ == "__main__":
    main()
