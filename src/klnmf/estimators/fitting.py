"""One fit: check the data and the constraints, run the solver, return W."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from klnmf.backends import Backend, ClusterLostError, backend_for, backend_named
from klnmf.backends.base import LazyInput
from klnmf.constraints.checks import warn_if_one_sided
from klnmf.constraints.explained_cells import check_explained
from klnmf.data.sparse_data import CountData
from klnmf.data.validation import warn_caller
from klnmf.estimators.checked_counts import warn_of_data
from klnmf.estimators.run_options import RunOptions, checked_run_options
from klnmf.saved.checkpoints import Checkpoint, fit_identity, should_resume
from klnmf.solvers import SOLVERS, Solver
from klnmf.solvers.base import Problem, State, relative_gain
from klnmf.solvers.loop import CallbackStop, MaxIterations, Record, Run, SmallGap, Solution
from klnmf.solvers.row_solve import row_solve_of
from klnmf.solvers.start import start_state
from klnmf.support.array_types import Array
from klnmf.support.number_checks import seed_of
from klnmf.support.option_names import option
from klnmf.support.progress import ProgressBar

if TYPE_CHECKING:
    from klnmf.estimators.base import FittedByLoop

# Iterations after which starts are compared. After 10 their order says nothing about the order at
# the end, after 20 it does (docs/performance_log.md).
TRIAL_ITERATIONS = 20


def fit_model(model: FittedByLoop, X: Any, start: Any, given: Any, *, wants_W: bool) -> Any:
    """Fit, set the fitted attributes and return W if it is wanted.

    ``start`` are factors to start from as they were passed, and ``given`` all constraints.
    """
    options = checked_run_options(model.run)
    solver = SOLVERS[model.solver]() if isinstance(model.solver, str) else model.solver
    r, where = model.n_components, backend_for(model.backend, X)

    def backend(*known: Any) -> type[Backend]:
        """Return the back-end that has what the solver needs; what it lacks is said first."""
        return backend_named(where, solver.needs(r, *known))

    if not backend().keeps_factors and model.warm_start:
        raise ValueError(
            f"warm_start=True and backend={model.backend!r} cannot be used together: the workers "
            "keep nothing after a fit. To continue a fit later, pass "
            f"run={option('checkpoint', 'PATH')}."
        )
    checked = model._checked(X, given, reset=True, backends=(model.backend,))
    data = checked.of_fit(r, backend)
    known = (data.dtype, data.constraints) if isinstance(data, CountData) else ()
    try:
        problem = Problem(backend(*known)(data, model.n_threads), checked.penalties)
        with closing(problem.backend):
            _check_problem(X, problem, r)
            seen = problem.backend.data
            given_start = model._checked_start(start, seen.shape, seen.dtype)
            run, solution = _run(model, options, problem, solver, given_start)
            if not wants_W:
                return None
            W = _downloaded(checked.data, run, solution.factors[0])
    except ClusterLostError as error:
        raise ClusterLostError(f"{error} {_way_back(options.checkpoint)}") from error
    if isinstance(checked.data, CountData):
        return checked.beside_X(model._fitted_rows(W, checked.data, problem.constraints))
    return checked.data.output(model._row_model(), W, problem.constraints)


def _check_problem(X: Any, problem: Problem, n_components: int) -> None:
    """Refuse cells that nothing can explain, and warn of what few people want."""
    constraints, seen = problem.constraints, problem.backend.data
    check_explained(constraints, seen)
    if not problem.is_frozen_anywhere(n_components).all():
        warn_if_one_sided(problem.penalties)  # a component that is free can be rescaled
    warn_of_data(X, seen.view(0), n_components, constraints)


def _downloaded(data: CountData | LazyInput, run: Run, W: Any) -> Any:
    """W of a fit, no longer on the back-end."""
    if not isinstance(data, CountData):
        return data.factor_of_fit(run.problem.backend, W)
    downloaded = run.problem.backend.download(W)
    if any(downloaded is factor for factor in run.state.factors):
        downloaded = downloaded.copy()  # a fit that continues from the state must not change it
    return downloaded


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


def _run(
    model: FittedByLoop,
    options: RunOptions,
    problem: Problem,
    solver: Solver,
    given: list[Array | None],
) -> tuple[Run, Solution]:
    """Solve from the start, from a checkpoint or from the last fit, and set what is fitted."""
    run, checkpoint = _begin_run(model, options, problem, solver, given)
    n_done = len(run.history) - run.n_untold
    with ProgressBar(options.progress, model.tol, model.max_iter, n_done) as bar:

        def on_record(record: Record) -> bool:
            bar.update(record)
            # A copy, so that whatever the callback does to it leaves history_ alone.
            return options.callback is not None and bool(options.callback(dict(record)))

        row_solve = row_solve_of(model.tol)
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


def _keep(model: FittedByLoop, run: Run, solution: Solution) -> None:
    """Set the fitted attributes, and the state to continue from with ``warm_start``."""
    constraints, evaluation = run.problem.constraints, solution.evaluation
    model._set_factors(
        run.problem,
        solution.factors,
        history=run.history,
        n_iter=len(run.history),
        divergence=evaluation.divergence,
        optimality_gap=evaluation.optimality_gap,
        kkt_residual=evaluation.kkt_residual,
        converged=solution.converged,
        constraint_names=constraints.names,
        n_fixed_W=int(constraints.is_frozen(0).sum()),
        data_checksum=run.problem.backend.data.sums_checksum,
    )
    model._saved_state = None
    if model.warm_start:
        model._saved_state = (_continuation_key(model, run.problem, run.solver), run.state)


# ---- the run: from a start, from the last fit, or from a checkpoint ------------------------------


def _begin_run(
    model: FittedByLoop,
    options: RunOptions,
    problem: Problem,
    solver: Solver,
    given: list[Array | None],
) -> tuple[Run, Checkpoint | None]:
    """Return the run of a fit, from the factors that are given, and its checkpoint."""
    path = None if options.checkpoint is None else Path(options.checkpoint)
    is_resumed = should_resume(path, options.resume)
    if path is not None and model.warm_start:
        raise ValueError(
            "warm_start=True and checkpoint cannot be used together: a second fit would continue "
            "both from the first and from the file. To continue a finished fit, leave out "
            "warm_start and increase max_iter."
        )
    is_new = any(factor is not None for factor in given)
    state = None if is_new else _warm_state(model, problem, solver)
    if state is not None:
        # A fit does at least one iteration, however good the last one was.
        return Run(problem, solver, state, next_check=state.iteration + 1), None
    seed = seed_of(model.random_state)
    if path is None:
        return _new_run(model, problem, solver, seed, given), None
    parameters: dict[str, Any] = {"n_components": int(model.n_components), "init": model.init}
    if model.n_init > 1:
        parameters["n_init"] = int(model.n_init)
    checkpoint = Checkpoint(
        path=path,
        every=options.checkpoint_every,
        identity=fit_identity(problem, solver, parameters, given),
        seed=None if model.random_state is None else seed,
        max_iter=model.max_iter,
        tol=model.tol,
    )
    if is_resumed:
        return checkpoint.resumed(problem, solver), checkpoint
    run = _new_run(model, problem, solver, seed, given)
    run.before_iteration = checkpoint.write_if_due
    return run, checkpoint


def _new_run(
    model: FittedByLoop, problem: Problem, solver: Solver, seed: int, given: list[Array | None]
) -> Run:
    """Return a new run, or the best of ``n_init`` runs after a few iterations."""
    run = _fresh_run(model, problem, solver, seed, given)
    if model.n_init == 1 or not run.state.was_drawn:
        return run
    enough = MaxIterations(min(TRIAL_ITERATIONS, model.max_iter))
    run.until(enough)
    seconds_of_others = 0.0
    for trial in range(1, model.n_init):
        # The first run has the seed of a fit without trials; the other seeds derive from it.
        its_seed = int(np.random.default_rng([seed, trial]).integers(np.iinfo(np.int32).max))
        other = _fresh_run(model, problem, solver, its_seed, given)
        other.until(enough)
        run, other = (other, run) if other.state.objective < run.state.objective else (run, other)
        seconds_of_others += other.state.seconds
    run.state.seed = seed  # a checkpoint recognises its fit by it
    run.state.seconds += seconds_of_others
    for record in run.history:
        record["seconds"] += seconds_of_others
    return run


def _fresh_run(
    model: FittedByLoop, problem: Problem, solver: Solver, seed: int, given: list[Array | None]
) -> Run:
    r, data = model.n_components, problem.backend.data
    if model.warm_start and model._is_fitted and all(factor is None for factor in given):
        known = [np.array(factor, dtype=data.dtype) for factor in model._others()]
        if [factor.shape for factor in known] == [(size, r) for size in data.shape[1:]]:
            given = [None, *known]
    state = start_state(problem, r, model.init, seed, given)
    return Run.started(problem, solver, state)


def _warm_state(model: FittedByLoop, problem: Problem, solver: Solver) -> State | None:
    """State of the last fit, if this one is its continuation."""
    if not model.warm_start:
        return None
    saved = model._saved_state
    if saved is None or saved[0] != _continuation_key(model, problem, solver):
        return None
    state: State = saved[1]
    # A model that joblib loaded as a memory map cannot be written to: the components are its start.
    is_mapped = any(isinstance(x, np.ndarray) and not x.flags.writeable for x in state.factors)
    model._saved_state = None  # the fit changes it; if that is cut short, it is not the last fit's
    return None if is_mapped else state


def _continuation_key(model: FittedByLoop, problem: Problem, solver: Solver) -> tuple[Any, ...]:
    """Return what must be the same for a fit to go on from the state of the last one."""
    fingerprint, constraints = problem.backend.data.fingerprint, problem.constraints.checksum
    return (fingerprint, model.n_components, repr(solver), problem.penalties, constraints)


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
