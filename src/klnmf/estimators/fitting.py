"""One fit of a KLNMF: check the data and the constraints, run the solver, return W."""

from __future__ import annotations

import math
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from klnmf.backends import ClusterLostError, backend_named
from klnmf.constraints.checks import check_constraints, warn_if_one_sided
from klnmf.constraints.constraints import ComponentConstraints, Constraints
from klnmf.constraints.explained_cells import check_explained
from klnmf.constraints.names import check_sample_order, names_seen_in_fit
from klnmf.data.matrix_checks import is_dask_array
from klnmf.data.sparse_data import CountData, FindConstraints
from klnmf.data.validation import warn_caller
from klnmf.estimators.counts_input import warn_of_data
from klnmf.estimators.run_options import RunOptions, checked_run_options
from klnmf.saved.checkpoints import Checkpoint, fit_identity, should_resume
from klnmf.solvers import Solver, make_solver
from klnmf.solvers.base import Problem, State, relative_gain
from klnmf.solvers.loop import CallbackStop, MaxIterations, Record, Run, SmallGap, Solution
from klnmf.solvers.start import start_state
from klnmf.support.number_checks import seed_of
from klnmf.support.option_names import option
from klnmf.support.progress import ProgressBar

if TYPE_CHECKING:
    from klnmf.estimators.kl_nmf import KLNMF

# Iterations after which starts are compared. After 10 their order says nothing about the order at
# the end, after 20 it does (docs/performance_log.md).
TRIAL_ITERATIONS = 20


def fit_model(model: KLNMF, X: Any, W: Any, H: Any, given: Any, *, wants_W: bool) -> Any:
    """Fit, set the fitted attributes and return W if it is wanted; ``given`` are constraints."""
    options = checked_run_options(model.run)
    try:
        return _fit(model, options, X, W, H, given, wants_W)
    except ClusterLostError as error:
        raise ClusterLostError(f"{error} {_way_back(options.checkpoint)}") from error


def _way_back(checkpoint: str | os.PathLike[str] | None) -> str:
    """Say how to continue after the cluster was lost."""
    if checkpoint is None:
        return f"To be able to continue after this, pass run={option('checkpoint', 'PATH')}."
    if not Path(checkpoint).exists():
        return f"The checkpoint {checkpoint} was not written yet: the next fit starts again."
    return (
        f"The progress is in the checkpoint {checkpoint}: the same fit continues from there and "
        "ends with exactly the same result."
    )


def _fit(
    model: KLNMF, options: RunOptions, X: Any, W: Any, H: Any, given: Any, wants_W: bool
) -> Any:
    solver = make_solver(model.solver)
    solver.check_backend(backend_named(model.backend))
    if model.warm_start and model.backend == "dask":
        raise ValueError(
            "warm_start=True and backend='dask' cannot be used together: the workers keep nothing "
            f"after a fit. To continue a fit later, pass run={option('checkpoint', 'PATH')}."
        )
    given = given | {name: getattr(model, name) for name in ComponentConstraints.__annotations__}
    check_sample_order(given, X)
    if is_dask_array(X):
        from klnmf.backends.dask.blocks import constraints_on_driver

        given = constraints_on_driver(given, X)
    missing = model._missing_cells(X, given.get("missing"), reset=True)
    if missing is not None and missing.nnz == math.prod(missing.shape):
        raise ValueError("missing covers every cell of X: nothing would be left to fit.")
    data = model._fit_input(X, missing)
    problem = model._problem(data, _finder(model, {**given, "missing": missing}, solver))
    constraints, seen = problem.constraints, problem.backend.data
    with closing(problem.backend):
        if constraints is not None:
            check_explained(constraints, seen)
        if constraints is None or not (constraints.is_frozen(0) | constraints.is_frozen(1)).all():
            warn_if_one_sided(problem.penalties)  # a component that is free can be rescaled
        warn_of_data(X, seen.view(0), model.n_components, constraints)
        run, solution = _run(model, options, problem, solver, W, H)
        W = _downloaded(X, run, solution.factors[0]) if wants_W else None
    if W is None:
        return None
    if is_dask_array(X):
        from klnmf.backends.dask.blocks import output_blocks

        return output_blocks(model._row_model(), X, W, constraints)
    if constraints is not None:
        assert isinstance(data, CountData)
        W = model._W_in_user_units(W, data, constraints)
    return model._as_output(W)


def _finder(model: KLNMF, given: Any, solver: Solver) -> FindConstraints:
    """Return the function that checks constraints once shape and type of X are known."""
    names, penalties = names_seen_in_fit(model), model._penalties()

    def found(shape: tuple[int, int], dtype: np.dtype[Any]) -> Constraints | None:
        size = (shape, model.n_components, dtype)
        constraints = check_constraints(given, *size, names, penalties)
        if constraints is not None:
            solver.check_constraints(constraints)
        return constraints

    return found


def _run(
    model: KLNMF, options: RunOptions, problem: Problem, solver: Solver, W: Any, H: Any
) -> tuple[Run, Solution]:
    """Solve from the start, from a checkpoint or from the last fit, and set what is fitted."""
    run, checkpoint = _begin_run(model, options, problem, solver, W, H)
    n_done = len(run.history) - run.n_untold
    with ProgressBar(options.progress, model.tol, model.max_iter, n_done) as bar:

        def on_record(record: Record) -> bool:
            bar.update(record)
            # A copy, so that whatever the callback does to it leaves history_ alone.
            return options.callback is not None and bool(options.callback(dict(record)))

        row_solve = model._row_solve()
        limit = MaxIterations(run.state.iteration - len(run.history) + model.max_iter)
        try:
            stopped_by = run.until(CallbackStop(on_record), SmallGap(model.tol, row_solve), limit)
            solution = run.finish(row_solve, model.tol)
        except KeyboardInterrupt:
            # Whatever was interrupted, the state holds a valid pair: the best so far, or one that a
            # half-step was improving.
            if checkpoint is not None:
                checkpoint.write(run)
            pair = problem.presented(run.state.factors, by_size=run.state.was_drawn)
            _keep(model, run, Solution(pair, problem.evaluate(pair), converged=False))
            raise
    _keep(model, run, solution)
    if checkpoint is not None:
        checkpoint.write(run)
    if not model.converged_ and stopped_by is limit:
        _warn_not_converged(model.history_, model.optimality_gap_, model.max_iter, model.tol)
    return run, solution


def _keep(model: KLNMF, run: Run, solution: Solution) -> None:
    """Set the fitted attributes, and the state to continue from with ``warm_start``."""
    (H,), constraints = run.problem.download(solution.factors[1:]), run.problem.constraints
    components = np.array((H if constraints is None else constraints.original(1, H)).T, order="C")
    model._set_fitted(
        model._as_output(components),
        run.history,
        divergence=solution.evaluation.divergence,
        optimality_gap=solution.evaluation.optimality_gap,
        kkt_residual=solution.evaluation.kkt_residual,
        converged=solution.converged,
        constraint_names=[] if constraints is None else constraints.names,
        n_fixed_W=0 if constraints is None else int(constraints.is_frozen(0).sum()),
        feature_weight=None if constraints is None else constraints.feature_weight,
        W_sums=run.problem.backend.column_sums(solution.factors[0]),
        data_checksum=run.problem.backend.data.sums_checksum,
    )
    if model.warm_start:
        model._saved_state = (_continuation_key(model, run.problem, run.solver), run.state)


def _downloaded(X: Any, run: Run, W: Any) -> Any:
    """W of a fit, no longer on the back-end: a Dask array for a Dask array."""
    if is_dask_array(X):
        from klnmf.backends.dask.blocks import blocks_of_factor

        return blocks_of_factor(run.problem.backend, W, X)
    downloaded = run.problem.backend.download(W)
    if any(downloaded is factor for factor in run.state.factors):
        downloaded = downloaded.copy()  # a fit that continues from the state must not change it
    return downloaded


# ---- the run: from a start, from the last fit, or from a checkpoint ------------------------------


def _begin_run(
    model: KLNMF, options: RunOptions, problem: Problem, solver: Solver, W: Any, H: Any
) -> tuple[Run, Checkpoint | None]:
    """Return the run of a fit that starts at W and H if given, and the checkpoint to write to."""
    path = None if options.checkpoint is None else Path(options.checkpoint)
    is_resumed = should_resume(path, options.resume)
    if path is not None and model.warm_start:
        raise ValueError(
            "warm_start=True and checkpoint cannot be used together: a second fit would continue "
            "both from the first and from the file. To continue a finished fit, leave out "
            "warm_start and increase max_iter."
        )
    state = _warm_state(model, problem, solver, W, H)
    if state is not None:
        # A fit does at least one iteration, however good the last one was.
        return Run(problem, solver, state, next_check=state.iteration + 1), None
    seed = seed_of(model.random_state)
    if path is None:
        return _new_run(model, problem, solver, seed, W, H), None
    parameters: dict[str, Any] = {"n_components": int(model.n_components), "init": model.init}
    if model.n_init > 1:
        parameters["n_init"] = int(model.n_init)
    checkpoint = Checkpoint(
        path=path,
        every=options.checkpoint_every,
        identity=fit_identity(problem, solver, parameters, W, H),
        seed=None if model.random_state is None else seed,
        max_iter=model.max_iter,
        tol=model.tol,
    )
    if is_resumed:
        return checkpoint.resumed(problem, solver), checkpoint
    run = _new_run(model, problem, solver, seed, W, H)
    run.before_iteration = checkpoint.write_if_due
    return run, checkpoint


def _new_run(model: KLNMF, problem: Problem, solver: Solver, seed: int, W: Any, H: Any) -> Run:
    """Return a new run, or the best of ``n_init`` runs after a few iterations."""
    run = _fresh_run(model, problem, solver, seed, W, H)
    if model.n_init == 1 or not run.state.was_drawn:
        return run
    enough = MaxIterations(min(TRIAL_ITERATIONS, model.max_iter))
    run.until(enough)
    seconds_of_others = 0.0
    for trial in range(1, model.n_init):
        # The first run has the seed of a fit without trials; the other seeds derive from it.
        its_seed = int(np.random.default_rng([seed, trial]).integers(np.iinfo(np.int32).max))
        other = _fresh_run(model, problem, solver, its_seed, W, H)
        other.until(enough)
        run, other = (other, run) if other.state.objective < run.state.objective else (run, other)
        seconds_of_others += other.state.seconds
    run.state.seed = seed  # a checkpoint recognises its fit by it
    run.state.seconds += seconds_of_others
    for record in run.history:
        record["seconds"] += seconds_of_others
    return run


def _fresh_run(model: KLNMF, problem: Problem, solver: Solver, seed: int, W: Any, H: Any) -> Run:
    if W is None and H is None and model.warm_start and hasattr(model, "components_"):
        fits = model.components_.shape == (model.n_components, problem.backend.data.shape[1])
        H = model.components_ if fits else None
    state = start_state(problem, model.n_components, model.init, seed, W, H)
    return Run.started(problem, solver, state)


def _warm_state(model: KLNMF, problem: Problem, solver: Solver, W: Any, H: Any) -> State | None:
    """State of the last fit, if this one is its continuation."""
    if not model.warm_start or W is not None or H is not None:
        return None
    saved = model._saved_state
    if saved is None or saved[0] != _continuation_key(model, problem, solver):
        return None
    state: State = saved[1]
    # A model that joblib loaded as a memory map cannot be written to: the components are its start.
    is_mapped = any(isinstance(x, np.ndarray) and not x.flags.writeable for x in state.factors)
    model._saved_state = None  # the fit changes it; if that is cut short, it is not the last fit's
    return None if is_mapped else state


def _continuation_key(model: KLNMF, problem: Problem, solver: Solver) -> tuple[Any, ...]:
    """Return what must be the same for a fit to go on from the state of the last one."""
    penalties = (model.l1_W, model.l2_W, model.l1_H, model.l2_H)
    constraints = None if problem.constraints is None else problem.constraints.checksum
    fingerprint = problem.backend.data.fingerprint
    return (fingerprint, model.n_components, repr(solver), penalties, constraints)


def _warn_not_converged(history: list[Record], gap: float, max_iter: int, tol: float) -> None:
    """Warn of a fit that was stopped by its number of iterations."""
    so_far = ""
    if len(history) > 1:
        change = relative_gain(history[-2]["objective"], history[-1]["objective"])
        fell = f"fell by {change:.1e} of its value" if change > 0 else "did not fall"
        so_far = f"; in the last iteration the objective {fell}"
    warn_caller(
        f"The fit stopped at {option('max_iter', max_iter)} with an optimality gap of "
        f"{gap:.2g}, above {option('tol', tol)}{so_far}. If that is not enough, increase "
        f"{option('max_iter')} (in Python, fits with warm_start=True continue where the last one "
        f"stopped). If it is, increase {option('tol')}.",
        ConvergenceWarning,
    )
