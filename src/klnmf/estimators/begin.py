"""How a fit begins: from a start, from the last fit, or from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from klnmf.data.validation import warn_caller
from klnmf.estimators.run_options import RunOptions
from klnmf.saved.checkpoints import Checkpoint, fit_identity, should_resume
from klnmf.solvers import Solver
from klnmf.solvers.base import Problem, State, relative_gain
from klnmf.solvers.loop import MaxIterations, Record, Run
from klnmf.solvers.start import start_state
from klnmf.support.option_names import option

# Iterations after which starts are compared. After 10 their order says nothing about the order at
# the end, after 20 it does (docs/performance_log.md).
TRIAL_ITERATIONS = 20


def begin_run(
    model: Any, options: RunOptions, problem: Problem, solver: Solver, W: Any, H: Any
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
    seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
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


def _new_run(model: Any, problem: Problem, solver: Solver, seed: int, W: Any, H: Any) -> Run:
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


def _fresh_run(model: Any, problem: Problem, solver: Solver, seed: int, W: Any, H: Any) -> Run:
    if W is None and H is None and model.warm_start and hasattr(model, "components_"):
        fits = model.components_.shape == (model.n_components, problem.backend.data.shape[1])
        H = model.components_ if fits else None
    state = start_state(problem, model.n_components, model.init, seed, W, H)
    return Run.started(problem, solver, state)


def _warm_state(model: Any, problem: Problem, solver: Solver, W: Any, H: Any) -> State | None:
    """State of the last fit, if this one is its continuation."""
    if not model.warm_start or W is not None or H is not None:
        return None
    saved = model._saved_state
    if saved is None or saved[0] != continuation_key(model, problem, solver):
        return None
    state: State = saved[1]
    # A model that joblib loaded as a memory map cannot be written to: the components are its start.
    is_mapped = any(isinstance(x, np.ndarray) and not x.flags.writeable for x in state.factors)
    return None if is_mapped else state


def continuation_key(model: Any, problem: Problem, solver: Solver) -> tuple[Any, ...]:
    """Return what must be the same for a fit to go on from the state of the last one."""
    penalties = (model.l1_W, model.l2_W, model.l1_H, model.l2_H)
    constraints = None if problem.constraints is None else problem.constraints.checksum
    fingerprint = problem.backend.data.fingerprint
    return (fingerprint, model.n_components, repr(solver), penalties, constraints)


def warn_not_converged(history: list[Record], residual: float, max_iter: int, tol: float) -> None:
    """Warn of a fit that was stopped by its number of iterations."""
    last, before = history[-1], history[-2 if len(history) > 1 else -1]
    change = relative_gain(before["objective"], last["objective"])
    warn_caller(
        f"The fit stopped at {option('max_iter', max_iter)} with a KKT residual of "
        f"{residual:.2g}, above {option('tol', tol)}; in the last iteration the objective fell by "
        f"{change:.1e} of its value. If that is not enough, increase {option('max_iter')} (in "
        "Python, fits with warm_start=True continue where the last one stopped). If it is, "
        f"increase {option('tol')}.",
        ConvergenceWarning,
    )
