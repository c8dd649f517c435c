"""The training loop: what it finds, keeps, refuses, and how it goes on after it was killed."""

import itertools
import math
import os
import re
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from jax_kernel.files import write
from tests.conftest import ROOT, two_level
from tests.torch_clerq.fit_in_a_process import STEPS
from tests.torch_clerq.test_cli import environment
from torch_clerq import (
    DivergenceWarning,
    ProblemError,
    Resolution,
    ResolutionError,
    ResolutionWarning,
    TorchPropagator,
    fit,
    learning_rate_scan,
)
from torch_clerq.checkpoint import load

QUIET = {"progress": False}


class Point(nn.Module):
    """Some numbers to move."""

    def __init__(self, *start, dtype=torch.float64):
        super().__init__()
        self.x = nn.Parameter(torch.tensor(start, dtype=dtype))


def bowl(point):
    scale = torch.arange(1, len(point.x) + 1, dtype=point.x.dtype)
    return (scale * (point.x - 1).square()).sum()


def rosenbrock(point):
    x, y = point.x
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


def sine_network():
    """The network of the case that parts at a learning rate of 2, and its loss."""
    numbers = np.random.default_rng(0)
    sizes = [1, 32, 32, 32, 32, 1]
    layers = [nn.Linear(a, b, dtype=torch.float64) for a, b in itertools.pairwise(sizes)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(torch.tensor(numbers.normal(size=layer.weight.shape) / math.sqrt(layer.in_features)))
            layer.bias.zero_()
    x = torch.linspace(-5, 5, 128, dtype=torch.float64)[:, None]
    y = x.sin() + 0.1 * torch.tensor(numbers.normal(size=(128, 1)))

    def loss(network):
        out = x
        for k, layer in enumerate(network):
            out = layer(out) if k == 0 else layer(out.sin())
        return (out - y).square().mean()

    return nn.ModuleList(layers), loss


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("adam", {"learning_rate": 0.3}), ("lbfgs", {}), (torch.optim.SGD, {"learning_rate": 0.1}),
     (lambda parameters: torch.optim.Rprop(parameters, lr=0.1), {}), ("AdamW", {"learning_rate": 0.3})],
)  # fmt: skip
def test_every_way_to_name_an_optimiser_finds_the_bottom(optimizer, options):
    point = Point(3.0, -2.0, 0.5)
    found = fit(point, bowl, steps=150, optimizer=optimizer, **options, **QUIET)
    assert found.value < 1e-3
    assert found.value == bowl(point).item()
    assert found.verified is None  # nothing in it has a resolution
    assert len(found.history.values) == len(found.history.seconds) <= 150


def test_an_optimiser_of_ones_own():
    point = Point(3.0)
    found = fit(point, bowl, steps=9, optimizer=torch.optim.SGD(point.parameters(), lr=0.1), **QUIET)
    assert found.value == pytest.approx(4 * 0.8 ** (2 * 9))
    assert found.history.learning_rates == [0.1] * 9
    assert found.history.gradient_norms[:2] == pytest.approx([4.0, 3.2])


def test_lbfgs_is_fast_on_a_curved_valley():
    point = Point(-1.2, 1.0)
    found = fit(point, rosenbrock, steps=100, optimizer="lbfgs", target=1e-20, **QUIET)
    assert found.stopped == "target"
    assert found.evaluations < 60
    assert found.step == len(found.history.values)  # the last trial of the last step
    torch.testing.assert_close(point.x.detach(), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_tiny_gradients_do_not_stop_it(optimizer):
    tiny = Point(3.0, -2.0)
    large = Point(3.0, -2.0)
    options = {"steps": 40, "optimizer": optimizer, "learning_rate": None if optimizer == "lbfgs" else 0.3} | QUIET
    of_tiny = fit(tiny, lambda point: 1e-14 * bowl(point), **options)
    of_large = fit(large, bowl, **options)
    assert of_tiny.value / 1e-14 < max(2 * of_large.value, 1e-8)
    assert of_tiny.history.gradient_norms[0] == pytest.approx(1e-14 * of_large.history.gradient_norms[0])


def test_lbfgs_learns_on_where_gradients_have_become_small():
    numbers = np.random.default_rng(0)
    rows = torch.tensor(numbers.normal(size=(30, 20)) * np.logspace(0, -2, 20))
    aim = rows @ torch.tensor(numbers.normal(size=20))
    misfit = lambda point: (rows @ point.x - aim).square().sum()  # noqa: E731
    point = Point(*[0.0] * 20)
    found = fit(point, misfit, steps=300, optimizer="lbfgs", target=1e-18, **QUIET)
    assert found.stopped == "target"  # far below the threshold of torch for y·s
    assert found.evaluations < 200


def test_lbfgs_of_torch_itself_would_have_stalled():
    alone, point = Point(3.0), Point(3.0)
    optimizers = [torch.optim.LBFGS(one.parameters(), line_search_fn="strong_wolfe") for one in (alone, point)]

    def closure():
        optimizers[0].zero_grad()
        loss = 1e-9 * bowl(alone)
        loss.backward()
        return loss

    optimizers[0].step(closure)
    assert alone.x.item() == 3.0
    found = fit(point, lambda point: 1e-9 * bowl(point), steps=5, optimizer=optimizers[1], **QUIET)
    assert point.x.item() == pytest.approx(1, abs=1e-6)
    assert found.history.values[0] == pytest.approx(4e-9)


def test_lbfgs_does_without_what_another_torch_may_not_remember():
    point = Point(-1.2, 1.0)
    options = {"max_iter": 1, "max_eval": 25, "tolerance_grad": 0, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS(point.parameters(), **options)
    forget = lambda at: optimizer.state[point.x].pop("prev_loss") is None  # noqa: E731
    fit(point, rosenbrock, steps=100, optimizer=optimizer, target=1e-12, callbacks=[forget], **QUIET)
    assert rosenbrock(point).item() <= 1e-12


@pytest.mark.parametrize("error", [ProblemError, ResolutionError])
def test_lbfgs_passes_trial_steps_that_cannot_be_evaluated(error):
    def walled(point):
        if point.x.item() < 0.2:
            raise error("nothing there")
        return (point.x * point.x.log()).sum()  # NaN below 0, smallest at 1/e

    point = Point(5.0)
    found = fit(point, walled, steps=30, optimizer="lbfgs", **QUIET)
    assert point.x.item() == pytest.approx(math.exp(-1), abs=1e-6)
    assert found.stopped in ("steps", "converged")
    assert point.x.grad is None


def test_the_best_is_kept_where_the_last_is_worse():
    point = Point(3.0)
    found = fit(point, bowl, steps=6, optimizer="sgd", learning_rate=1.05, guard=False, **QUIET)
    assert found.value == found.history.values[0] == bowl(point).item()
    assert found.step == 0
    assert found.history.values[-1] > found.value


def test_it_ends_when_asked():
    seen = []

    def callback(at):
        seen.append(at)
        return at.step == 4

    found = fit(Point(3.0), bowl, steps=9, learning_rate=0.1, callbacks=[callback], **QUIET)
    assert (found.stopped, len(seen)) == ("callback", 4)
    assert [at.step for at in seen] == [1, 2, 3, 4]
    assert seen[2].best <= seen[2].value
    assert [at.value for at in seen] == found.history.values
    assert fit(Point(3.0), bowl, steps=99, learning_rate=0.5, target=0.1, **QUIET).stopped == "target"
    assert fit(Point(3.0), bowl, steps=99, learning_rate=1e-300, patience=3, **QUIET).stopped == "patience"
    assert len(fit(Point(3.0), bowl, steps=5, learning_rate=0.1, patience=1, **QUIET).history.values) == 5
    still = fit(Point(1.0), bowl, steps=99, optimizer="lbfgs", **QUIET)
    assert (still.stopped, len(still.history.values)) == ("converged", 1)


def test_schedulers_and_clipping():
    found = fit(Point(3.0), bowl, steps=4, optimizer="sgd", learning_rate=0.1, scheduler="cosine", **QUIET)
    assert found.history.learning_rates == pytest.approx([0.1 * (1 + math.cos(math.pi * k / 4)) / 2 for k in range(4)])
    plateau = lambda one: torch.optim.lr_scheduler.ReduceLROnPlateau(one, factor=0.5, patience=0)  # noqa: E731
    found = fit(Point(1.0 + 1e-9), bowl, steps=6, optimizer="sgd", learning_rate=1.0, scheduler=plateau, **QUIET)
    assert found.history.learning_rates[-1] < 1.0
    point = Point(3.0)
    fit(point, bowl, steps=1, optimizer="sgd", learning_rate=1.0, max_grad_norm=0.5, **QUIET)
    assert point.x.item() == pytest.approx(2.5)


def test_batches_run_again_and_again():
    point, seen = Point(0.0), []

    def loss(point, batch):
        seen.append(batch)
        return (point.x - batch).square().sum()

    found = fit(point, loss, steps=7, optimizer="sgd", learning_rate=0.1, batches=[1.0, 2.0, 3.0], guard=False, **QUIET)
    assert seen == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]
    means = [sum(found.history.values[k : k + 3]) / 3 for k in (0, 3)]
    assert found.value == min(means) > found.history.values[6]  # one easy batch is no pass
    point = Point(0.0)
    found = fit(point, loss, steps=2, optimizer="sgd", learning_rate=0.1, batches=[1.0, 2.0, 3.0], guard=False, **QUIET)
    assert found.value == sum(found.history.values) / 2  # of the only pass there is
    found = fit(point, loss, steps=3, optimizer="sgd", learning_rate=0.1, batches=[1.0, 2.0, 3.0], guard=False, **QUIET)
    assert found.value == sum(found.history.values) / 3
    options = {"optimizer": "sgd", "guard": False} | QUIET
    found = fit(Point(3.0), loss, steps=4, learning_rate=0.1, batches=[3.0, 1.0], **options)
    assert found.stopped == "steps"  # though the first batch has no gradient
    options |= {"learning_rate": 1e-300, "batches": [1.0, 2.0, 3.0]}
    found = fit(Point(0.0), loss, steps=99, patience=2, **options)  # passes, of which the first is the best
    assert (found.stopped, len(found.history.values)) == ("patience", 10)
    with pytest.raises(ProblemError, match="`batches` must hold a batch, and run anew for each pass"):
        fit(point, loss, steps=7, optimizer="sgd", learning_rate=0.1, batches=iter([1.0]), **QUIET)


def test_complex_parameters():
    point = nn.ParameterList([torch.tensor([1 + 1j], dtype=torch.complex128)])
    target = lambda point: (point[0] - (2 - 3j)).abs().square().sum()  # noqa: E731
    for optimizer in ("lbfgs", "adam"):
        fit(point, target, steps=200, optimizer=optimizer, learning_rate=None if optimizer == "lbfgs" else 0.1, **QUIET)
        assert target(point).item() < 1e-3


# Nothing is lost


def test_ctrl_c_ends_it_with_the_best():
    def interrupt(at):
        if at.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    point = Point(3.0)
    found = fit(point, bowl, steps=50, optimizer="sgd", learning_rate=0.1, callbacks=[interrupt], **QUIET)
    assert found.stopped == "interrupted"
    assert len(found.history.values) == 3
    assert found.value == bowl(point).item()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = fit(Point(3.0), bowl, steps=3, callbacks=[lambda at: os.kill(os.getpid(), signal.SIGINT)], **QUIET)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.stopped == "steps"


def test_an_error_leaves_the_best_in_the_module():
    def loss(point):
        if point.x.item() < 2:
            raise ZeroDivisionError("a fault of the user's")
        return bowl(point)

    point = Point(3.0)
    with pytest.raises(ZeroDivisionError) as caught:
        fit(point, loss, steps=50, optimizer="sgd", learning_rate=0.1, **QUIET)
    assert "The module holds the best parameters of the 4 steps" in caught.value.__notes__[0]
    assert point.x.item() == pytest.approx(1 + 2 * 0.8**3)


def test_what_is_not_finite_ends_it_with_the_best():
    point = Point(3.0)
    log = lambda point: (point.x - 2).log().sum()  # noqa: E731
    with pytest.warns(DivergenceWarning, match="the objective became nan with a gradient of norm .* at step 3"):
        found = fit(point, log, steps=50, optimizer="sgd", learning_rate=0.9, **QUIET)
    assert found.stopped == "diverged"
    assert math.isfinite(found.value)
    assert found.value == log(point).item()


@pytest.mark.parametrize("kind", ["adam", "lbfgs", "batches"])
def test_a_killed_process_goes_on_to_the_bit(kind, tmp_path):
    def start(name):
        arguments = [sys.executable, "-m", "tests.torch_clerq.fit_in_a_process", kind, tmp_path / f"{name}.ckpt"]
        return subprocess.Popen(
            [*map(str, arguments), str(tmp_path / f"{name}.pt")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment(), cwd=ROOT,
        )  # fmt: skip

    whole = start("whole")
    seen = []
    for stop in (3, 11, 14, None):
        process = start("killed")
        for line in process.stdout:
            if line.strip().isdecimal():
                seen.append(int(line))
                if seen[-1] == stop:
                    process.send_signal(signal.SIGKILL)
        _, err = process.communicate(timeout=300)
        assert process.returncode == (0 if stop is None else -signal.SIGKILL), err
    whole.communicate(timeout=300)
    assert whole.returncode == 0
    assert seen[-1] == STEPS
    assert (
        len(set(range(1, STEPS + 1)) - set(seen)) <= 3
    )  # a step may be saved and not yet printed when the signal comes
    assert all(later - before in (1, 2) for before, later in itertools.pairwise(seen))  # none was lost
    a, b = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("whole", "killed"))
    assert a["history"] == b["history"]
    assert a["value"] == b["value"]
    assert all(torch.equal(a["state"][name], b["state"][name]) for name in a["state"])


def test_a_finished_checkpoint_is_the_result(tmp_path):
    options = {"steps": 5, "learning_rate": 0.1, "checkpoint": tmp_path / "run.pt"} | QUIET
    first = fit(Point(3.0), bowl, **options)
    point = Point(7.0)
    again = fit(point, bowl, **options)
    assert again.history == first.history
    assert again.value == first.value == bowl(point).item()
    longer = fit(Point(7.0), bowl, **(options | {"steps": 8}))
    assert longer.history.values[:5] == first.history.values
    assert len(longer.history.values) == 8


def test_another_objective_does_not_go_on(tmp_path):
    path = tmp_path / "run.pt"
    fit(Point(3.0), bowl, checkpoint=path, steps=3, learning_rate=0.1, **QUIET)
    with pytest.raises(ProblemError, match=r"`objective` must be the one that .* was made with, but is"):
        fit(Point(3.0), lambda point: 2 * bowl(point), checkpoint=path, steps=5, learning_rate=0.1, **QUIET)


def test_checkpoints_that_are_none(tmp_path):
    path = tmp_path / "run.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ProblemError, match=r"`checkpoint` must be a file that `fit` has written, but .*run\.pt cannot"):
        fit(Point(3.0), bowl, checkpoint=path, **QUIET)
    assert path.read_bytes() == b"not a checkpoint"
    torch.save({"version": 0}, path)
    with pytest.raises(ProblemError, match=r"must be of version 1, but .* is of version 0"):
        fit(Point(3.0), bowl, checkpoint=path, **QUIET)
    path.unlink()
    fit(Point(3.0), bowl, checkpoint=path, steps=1, **QUIET)
    with pytest.raises(ProblemError, match=r"of this fit, but .* another `(module|optimizer)`"):
        fit(Point(3.0, 1.0), bowl, checkpoint=path, steps=1, **QUIET)
    with pytest.raises(ProblemError, match=r"of this fit, but .* another `(module|optimizer)`"):
        fit(Point(3.0), bowl, checkpoint=path, steps=1, optimizer="lbfgs", **QUIET)
    with pytest.raises(ProblemError, match="`checkpoint` must lie in a folder that exists"):
        fit(Point(3.0), bowl, checkpoint=tmp_path / "no" / "run.pt", **QUIET)


class Payload:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("pwned",))


def test_a_checkpoint_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"version": 1, "module": Payload()}, "run.pt")
    with pytest.raises(ProblemError, match="cannot be read as one"):
        load(tmp_path / "run.pt")
    assert not (tmp_path / "pwned").exists()


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "run.pt"
    fit(Point(3.0), bowl, checkpoint=path, steps=2, **QUIET)
    before = path.read_bytes()

    def half(file):
        file.write(b"half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        write(path, half)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


def test_a_callback_or_a_disk_that_fails_leaves_the_best(tmp_path, monkeypatch):
    def callback(at):
        raise KeyError("a fault of the user's")

    point = Point(3.0)
    with pytest.raises(KeyError) as caught:
        fit(point, bowl, optimizer="sgd", learning_rate=2.0, guard=False, callbacks=[callback], **QUIET)
    assert "The module holds the best parameters of the 1 steps" in caught.value.__notes__[0]
    assert point.x.item() == 3.0

    writes = itertools.count()

    def full(*arguments):
        if next(writes):
            raise OSError("No space left on device")
        write(*arguments)

    monkeypatch.setattr("torch_clerq.checkpoint.write", full)
    with pytest.raises(OSError, match="No space") as trouble:
        fit(point, bowl, optimizer="sgd", learning_rate=0.1, checkpoint=tmp_path / "run.pt", **QUIET)
    assert "The module holds the best parameters" in trouble.value.__notes__[0]


def test_what_is_not_finite_from_the_start():
    with pytest.warns(DivergenceWarning, match="the objective became nan"):
        found = fit(Point(3.0), lambda point: (point.x - 4).log().sum(), steps=5, **QUIET)
    assert (found.stopped, found.verified, found.value) == ("diverged", None, math.inf)


# When numbers stop meaning anything


def test_a_course_that_parts_is_noticed_within_the_first_steps():
    network, loss = sine_network()
    steps = []
    with pytest.warns(DivergenceWarning, match="The fit diverges") as seen:
        fit(network, loss, steps=20, learning_rate=2.0, callbacks=[lambda at: steps.append(len(seen))], **QUIET)
    assert len(seen) == 1
    assert 1 <= steps.index(1) <= 5
    assert "learning_rate_scan" in str(seen[0].message)


@pytest.mark.parametrize("start", [0.3, 0.0])
def test_chaos_within_bounds_is_noticed(start):
    """Steps down a double well that are too long for it: bounded, and about twice as far apart each time."""
    well = lambda x: (x**4 / 4 - x**2 / 2).sum()  # noqa: E731
    options = {"optimizer": "sgd", "learning_rate": 1.95} | QUIET
    with pytest.warns(DivergenceWarning, match="a change of the parameters by one rounding") as seen:
        found = fit(Point(start), lambda point: well(point.x + 0.3 - start), steps=99, **options)
    assert len(seen) == 1
    assert 20 <= int(re.search(r"after (\d+) steps", found.diverging)[1]) <= 64


def test_a_course_that_does_not_part_is_left_alone():
    network, loss = sine_network()
    before = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watched = fit(network, loss, steps=20, optimizer="adam", learning_rate=2e-2, **QUIET)
    assert torch.equal(before, torch.get_rng_state())
    network, loss = sine_network()
    alone = fit(network, loss, steps=20, optimizer="adam", learning_rate=2e-2, guard=False, **QUIET)
    assert watched.history.values == alone.history.values
    assert watched.diverging is None


def test_one_hard_batch_is_no_divergence():
    loss = lambda point, batch: (point.x - batch).square().sum()  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(Point(3.0), loss, steps=30, optimizer="sgd", learning_rate=0.01, batches=[3.0, 3.01, 9.0, 3.0], **QUIET)
    with pytest.warns(DivergenceWarning, match="has grown from"):
        fit(Point(3.1), loss, steps=60, optimizer="sgd", learning_rate=1.5, batches=[3.0, 3.0, 3.0], **QUIET)


def test_the_guard_needs_no_copy_and_no_argument():
    class Unique(Point):
        def __deepcopy__(self, memo):
            raise RuntimeError("only leaf tensors can be copied")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(Unique(3.0), bowl, steps=9, optimizer="sgd", learning_rate=0.1, **QUIET)
        point = Point(3.0)
        found = fit(point, lambda _: bowl(point), steps=9, optimizer="sgd", learning_rate=0.1, **QUIET)
    assert found.value == pytest.approx(4 * 0.8 ** (2 * 9))


def test_a_loss_that_runs_away_is_noticed():
    with pytest.warns(DivergenceWarning, match="the objective has grown from"):
        fit(Point(3.0), bowl, steps=30, optimizer="sgd", learning_rate=1.7, **QUIET)


def medium(resolution, g=2.0):
    problem = two_level(envelope="gaussian", args={"ampl": 1.0, "centre": 0.0, "fwhm": 1.0}, g=g, rabi_freq=1.0)
    return TorchPropagator(
        problem, trainable=("interaction_strengths",), dtype=torch.float64, resolution=resolution, tol=1e9
    )


def transmitted(layer):
    fields = layer()
    return (fields[0, -1].abs().square().sum() / fields[0, 0].abs().square().sum() - 0.3) ** 2


def test_a_result_is_verified_at_twice_the_resolution():
    layer = medium(Resolution(12, 2))
    found = fit(layer, transmitted, steps=8, optimizer="lbfgs", target=1e-12, **QUIET)
    assert found.value < 1e-6
    assert found.verified == pytest.approx(found.value, abs=1e-6)
    assert "at twice the resolution" in str(found)
    assert layer.resolution == Resolution(12, 2)


def test_verifying_leaves_buffers_alone():
    def counted(layer):
        with torch.no_grad():
            layer.calls += 1
        return transmitted(layer)

    found = {}
    for verify in (False, True):
        layer = medium(Resolution(12, 2))
        layer.register_buffer("calls", torch.zeros(()))
        fit(layer, counted, steps=2, learning_rate=0.1, verify=verify, **QUIET)
        found[verify] = layer.calls.item()
    assert found[False] == found[True] > 0


def test_a_layer_that_searched_its_resolution_searches_on_when_it_is_outgrown():
    layer = TorchPropagator(
        two_level(rabi_freq=1e-3), trainable=("interaction_strengths",), dtype=torch.float64, tol=1e-4
    )
    with torch.no_grad():
        layer.interaction_strengths.fill_(1e-3)

    def loss(layer):  # a medium that is to absorb more and more
        fields = layer()
        return fields[0, -1].abs().square().sum() / fields[0, 0].abs().square().sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResolutionWarning)
        seen = []
        found = fit(
            layer, loss, steps=40, learning_rate=0.5, callbacks=[lambda at: seen.append(layer.resolution)], **QUIET
        )
    assert seen[-1].t_substeps > seen[0].t_substeps
    assert found.verified == pytest.approx(found.value, abs=1e-4)
    assert not layer.watch.cured


def test_a_result_that_is_an_error_of_the_grid_is_called_one():
    layer = medium(Resolution(2, 2), g=5.0)
    with pytest.warns(ResolutionWarning, match="the fit has used an error of the grid"):
        found = fit(layer, transmitted, steps=8, optimizer="lbfgs", target=1e-12, **QUIET)
    assert found.verified > 10 * found.value


def test_learning_rate_scan():
    network, loss = sine_network()
    before = [p.clone() for p in network.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scan = learning_rate_scan(network, loss, learning_rates=(2.0, 1e-6, 2e-2))
    assert scan.learning_rates == (1e-6, 2e-2, 2.0)
    assert scan.verdicts == ("slow", "descends", "diverges")
    assert scan.best == 2e-2
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    assert "<- fastest" in str(scan).splitlines()[2]


def test_a_scan_leaves_random_numbers_and_buffers_alone_and_ends_at_ctrl_c():
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
    given = torch.arange(8.0).reshape(4, 2)
    before, random = {name: x.clone() for name, x in network.state_dict().items()}, torch.get_rng_state()
    rates = (1e-12, 2e-12)
    scan = learning_rate_scan(network, lambda one: one(given).square().mean(), learning_rates=rates, steps=3)
    assert scan.values[0] == pytest.approx(scan.values[1], rel=1e-5)  # with the same random numbers
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], x) for name, x in network.state_dict().items())
    seen = []

    def interrupted(point):
        seen.append(point)
        if len(seen) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return bowl(point)

    with pytest.raises(KeyboardInterrupt):
        learning_rate_scan(Point(3.0), interrupted, learning_rates=(0.1, 0.2, 0.3))
    assert len({id(point) for point in seen}) <= 3  # the start, the first rate, and its guard's copy


# What it shows, and refuses


def test_progress(capfd):
    fit(Point(3.0), bowl, steps=20, learning_rate=0.1, progress=lambda value: f"height {value:.2f}")
    out, err = capfd.readouterr()
    assert out == ""
    assert [line.split("  ")[0] for line in err.splitlines()] == ["step 1/20", "step 10/20", "step 20/20"]
    assert "height 4.00" in err
    assert "ETA 0 s" in err


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((nn.Linear, bowl), {}, "`module` must be an nn.Module"),
        ((Point(1.0), 3), {}, "`objective` must be a function of the module, but is 3"),
        ((nn.Module(), bowl), {}, "`module` must have a parameter that requires a gradient, but has none"),
        ((Point(1.0), bowl), {"steps": 0}, "`steps` must be an integer of at least 1, but is 0"),
        ((Point(1.0), bowl), {"patience": 0}, "`patience` must be an integer of at least 1, but is 0"),
        ((Point(1.0), bowl), {"optimizer": "adm"}, '`optimizer` must be one of .*adam.*, but is "adm"'),
        ((Point(1.0), bowl), {"optimizer": 3}, "`optimizer` must be a name, a class, a function .*, but is 3"),
        ((Point(1.0), bowl), {"optimizer": lambda p: 3}, "`optimizer` must return a torch.optim.Optimizer, but"),
        ((Point(1.0), bowl), {"optimizer": torch.optim.SGD(Point(1.0).parameters())}, "`optimizer` must hold"),
        ((Point(1.0), bowl), {"learning_rate": 0.0}, "`learning_rate` must be positive, but is 0.0"),
        ((Point(1.0), bowl), {"scheduler": "linear"}, "`scheduler` must be \"cosine\" or a .*'linear'"),
        ((Point(1.0), bowl), {"max_grad_norm": 0}, "`max_grad_norm` must be positive, but is 0"),
        ((Point(1.0), lambda point: 1.0), {}, "`objective` must return a real scalar tensor .* returned a float"),
        ((Point(1.0, 2.0), lambda point: point.x), {}, r"returned one of shape \(2,\) and torch.float64"),
        ((Point(1.0), lambda point: torch.ones(())), {}, "returned one that does not depend on any parameter"),
    ],
)  # fmt: skip
def test_refusals(arguments, options, text):
    with pytest.raises(ProblemError, match=text):
        fit(*arguments, **(QUIET | options))


def test_refusals_of_the_scan():
    with pytest.raises(ProblemError, match="`learning_rates` must be positive numbers, at least one, but is \\(0"):
        learning_rate_scan(Point(1.0), bowl, learning_rates=(0.0, 1.0))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"steps": None}, "`steps` must be an integer"),
        ({"learning_rate": "x"}, "`learning_rate` must be positive, but is 'x'"),
        ({"max_grad_norm": "x"}, "`max_grad_norm` must be positive"),
        ({"target": math.nan}, "`target` must be a number"),
        ({"batches": 3}, "`batches` must be what a loop can run over"),
        ({"callbacks": [3]}, "`callbacks` must be functions"),
        ({"progress": None}, "`progress` must be True"),
        ({"checkpoint": 3}, "`checkpoint` must be a path"),
        ({"optimizer": "muon"}, "`optimizer` must suit the module's parameters"),
        ({"scheduler": lambda optimizer: 3}, "`scheduler` must return a scheduler"),
        ({"scheduler": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=2)}, "`scheduler` must last"),
    ],
)
def test_more_options_that_are_none(options, text):
    with pytest.raises(ProblemError, match=text):
        fit(Point(3.0), bowl, **({"steps": 5} | QUIET | options))


@pytest.mark.parametrize(
    ("module", "objective", "text"),
    [
        (nn.LazyLinear(2), bowl, "`weight` has none yet"),
        (Point(), bowl, "must have a parameter that requires a gradient"),
        (Point(math.nan), bowl, "must have finite parameters"),
        (Point(3.0), lambda point: 2 * torch.ones((), requires_grad=True), "does not depend on any parameter"),
    ],
)
def test_modules_and_objectives_that_cannot_be_trained(module, objective, text):
    with pytest.raises(ProblemError, match=text):
        fit(module, objective, steps=2, **QUIET)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_on_inside_a_fit(mode):
    point = Point(3.0)
    with mode():
        found = fit(point, bowl, steps=3, **QUIET)
        learning_rate_scan(point, bowl, steps=2, learning_rates=(0.1,))
    assert found.value < 4.0


def test_a_checkpoint_of_another_fit(tmp_path):
    path = tmp_path / "run.pt"
    options = {"steps": 4, "checkpoint": path, "scheduler": "cosine"} | QUIET
    fit(Point(3.0), bowl, **options)
    for module, change, part in (
        (Point(3.0, dtype=torch.float32), {}, "module"),
        (Point(3.0), {"learning_rate": 0.5}, "optimizer"),
        (Point(3.0), {"steps": 6}, "scheduler"),
        (Point(3.0), {"scheduler": None}, "scheduler"),
    ):
        with pytest.raises(ProblemError, match=f"of one with another `{part}`"):
            fit(module, bowl, **(options | change))
    with pytest.raises(ProblemError, match="`batches`"):
        fit(Point(3.0), lambda point, batch: bowl(point), **(options | {"batches": [1]}))


def test_what_a_checkpoint_cannot_hold_is_said_before_the_first_step(tmp_path):
    class Odd(Point):
        def get_extra_state(self):
            return np.zeros(3)

        def set_extra_state(self, state):
            pass

    path = tmp_path / "run.pt"
    with pytest.raises(ProblemError, match="`module` must have a state of tensors"):
        fit(Odd(3.0), bowl, checkpoint=path, **QUIET)
    assert not path.exists()
    with pytest.raises(ProblemError, match="`checkpoint` must be a file that can be written"):
        fit(Point(3.0), bowl, checkpoint=tmp_path / ("x" * 300), **QUIET)


def test_an_error_after_the_last_step_leaves_the_best():
    calls = itertools.count()

    def fails_at_the_end(point):
        if next(calls) == 3:
            raise ValueError("the end")
        return bowl(point)

    point = Point(3.0)
    with pytest.raises(ValueError, match="the end") as caught:
        fit(point, fails_at_the_end, steps=3, guard=False, learning_rate=0.1, **QUIET)
    assert point.x.item() == pytest.approx(2.8, abs=1e-3)
    assert "best parameters" in caught.value.__notes__[0]


def test_the_guard_follows_a_scheduler_of_momenta():
    schedule = lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)  # noqa: E731
    assert fit(Point(3.0), bowl, steps=8, scheduler=schedule, **QUIET).diverging is None
