"""Fits the stage-time models to measured units, says how far to trust them, and keeps them fitted while a run goes on.

Base form `M(W, d) = a + b * W / d` (design section 6), by least squares with coefficients >= 0. It refuses samples that
are no measurement (no work, no replica, no time) and a fit without samples. It never invents a confidence: what too few
samples cannot tell is None. Noise is taken to grow with the predicted time, as the profile's noise does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.drift import STEADY, DriftTest, Verdict
from planner.intervals import student_t
from planner.stage_model import StageModel

SAME_LOAD = 1e-6
"""Relative spread of W/d below which it is one value: a and b cannot be told apart, and rounding would choose them."""

NARROW_LOAD = 0.05
"""Relative spread of W/d below which a prior's shape is trusted more than the samples': all full-size chunks on one
replica take noise for slope."""

MIN_DEGREES = 2.0
"""Effective samples beyond the coefficients that a confidence needs: with fewer its band is too wide to be of use."""

BAND = 0.9
"""Share of measurements that `Fit.interval` is to hold."""

ONLINE_DECAY = 0.98
"""Age decay per observed unit: about 99 effective samples, enough to average 10% noise down to 1%, while a unit of two
hundred units ago counts for less than 2%."""

ONLINE_WINDOW = 256
"""Samples kept by an online fit: the oldest would weigh 0.6% of the newest."""

ONLINE_MINIMUM = 8
"""Samples before an online fit replaces its prior: fewer give a slope that is mostly noise."""

ERRORS_KEPT = 200
"""Held-out errors behind the reported model error: a stable 90th percentile, and only of the run's recent past."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured unit of a stage. Raises ValueError on what is no measurement."""

    workload: float
    """group-equivalents, above 0"""
    replicas: int
    """replicas that shared the work, at least 1"""
    seconds: float
    """measured seconds, above 0"""

    def __post_init__(self) -> None:
        if not 0 < self.workload < math.inf:
            raise ValueError(f"workload of a sample must be a number above 0, got {self.workload!r}")
        if self.replicas < 1:
            raise ValueError(f"replicas of a sample must be at least 1, got {self.replicas!r}")
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds of a sample must be a number above 0, got {self.seconds!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of predictions, |predicted - measured| / measured."""

    median: float
    """fraction of the measured seconds"""
    p90: float
    """90th percentile, fraction of the measured seconds"""
    count: int
    """predictions that were compared"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted model and how far to trust it."""

    model: StageModel
    """the fitted a and b"""
    samples: int
    """samples that were used"""
    effective_samples: float
    """(sum of weights)^2 / sum of squared weights: equally weighted samples that would be worth as much"""
    residuals: Errors
    """errors on the fitted samples themselves"""
    noise: float | None
    """standard deviation of a measurement, fraction of the predicted seconds; None when too few samples tell it"""
    standard_error_a: float | None
    """seconds; None when a was not free (held at 0) or too few samples tell it"""
    standard_error_b: float | None
    """seconds per group-equivalent and replica; None as for a"""
    covariance: tuple[float, float, float] | None
    """variances of a and b and their covariance"""
    degrees: float
    """effective samples beyond the free coefficients"""

    def interval(self, workload: float, replicas: int) -> tuple[float, float] | None:
        """Seconds between which 90% of measurements of this unit are expected; None when too few samples tell it.

        The measurement's own noise and the doubt about a and b, by Student's t.
        """
        predicted = self.model.seconds(workload, replicas)
        if predicted == 0 or math.isinf(predicted):
            return predicted, predicted
        if self.noise is None or self.covariance is None:
            return None
        load = workload / replicas
        var_a, var_b, cov_ab = self.covariance
        doubt = max(0.0, var_a + load * load * var_b + 2 * load * cov_ab)
        half = student_t(0.5 + BAND / 2, self.degrees) * math.sqrt((self.noise * predicted) ** 2 + doubt)
        return max(0.0, predicted - half), predicted + half


def fit(samples: Sequence[Sample], decay: float, prior: StageModel | None = None) -> Fit:
    """Weighted least squares of a + b * W/d over samples in time order, oldest first; weight decay**age, newest age 0.

    - a < 0 refits through the origin (a = 0); b < 0 becomes the constant model (b = 0, a the weighted mean). Both are
      the least-squares optimum among coefficients >= 0.
    - One value of W/d only: through the origin, since time in proportion to work is the one form that one point fixes.
    - With a `prior`, where the samples tell no slope (W/d within 5%, or b < 0): the prior times the one factor that
      fits them best.

    Raises ValueError without samples, or for a decay outside (0, 1].
    """
    if not samples:
        raise ValueError("a stage-time model needs at least 1 sample (workload, replicas, seconds), got none")
    if not 0 < decay <= 1:
        raise ValueError(f"the age decay must be above 0 and at most 1, got {decay!r}")
    x, y, w = _columns(samples, decay)
    shape = _shape(x, y, w, prior)
    a, b = _coefficients(shape, x, y, w)
    model = StageModel(a=a, b=b)
    predicted = a + b * x
    effective = float(w.sum() ** 2 / (w @ w))
    free = shape.shape[1]
    noise: float | None = None
    covariance: tuple[float, float, float] | None = None
    if effective - free >= MIN_DEGREES:
        noise, covariance = _confidence(shape, x, y, w, predicted)
    a_free, b_free = bool(shape[0].any()), bool(shape[1].any())
    return Fit(
        model=model,
        samples=len(samples),
        effective_samples=effective,
        residuals=_errors(np.abs(predicted - y) / y),
        noise=noise,
        standard_error_a=math.sqrt(covariance[0]) if covariance is not None and a_free else None,
        standard_error_b=math.sqrt(covariance[1]) if covariance is not None and b_free else None,
        covariance=covariance,
        degrees=effective - free,
    )


def errors_of(model: StageModel, samples: Iterable[Sample]) -> Errors | None:
    """The model's errors on samples that it was not fitted to; None without any."""
    return summary(
        [abs(model.seconds(sample.workload, sample.replicas) - sample.seconds) / sample.seconds for sample in samples]
    )


class OnlineFit:
    """A stage-time model that is refitted from every unit of a run, in bounded memory.

    Until it has `minimum` samples it answers with its prior. Every unit is predicted before it is entered, so that its
    error is that of a forecast. When those errors say that the stage has changed (`planner.drift`), the samples from
    before the change are forgotten: averaging them with the new ones describes neither. Until enough new ones are there
    the old model stands in, scaled to those that showed the change.
    """

    def __init__(
        self,
        *,
        prior: StageModel | None = None,
        decay: float = ONLINE_DECAY,
        window: int = ONLINE_WINDOW,
        minimum: int = ONLINE_MINIMUM,
    ) -> None:
        if not 1 <= minimum <= window:
            raise ValueError(f"minimum must be within 1 and the window of {window} samples, got {minimum!r}")
        if not 0 < decay <= 1:
            raise ValueError(f"the age decay must be above 0 and at most 1, got {decay!r}")
        self._prior = prior
        self._decay = decay
        self._minimum = minimum
        self._samples: deque[Sample] = deque(maxlen=window)
        self._errors: deque[float] = deque(maxlen=ERRORS_KEPT)
        self._test = DriftTest()
        self._model = prior
        self._fit: Fit | None = None
        self._drifts: list[Verdict] = []

    def observe(self, sample: Sample) -> Verdict:
        """Predict the unit, keep the error, enter the unit; says whether the stage has changed with it.

        The `since` of a change counts the units that were predicted: all of them when there is a prior.
        """
        verdict = self._compare(sample)
        self._samples.append(sample)
        if verdict.drifted:
            self._forget(verdict)
        if len(self._samples) >= self._minimum:
            columns = _columns(self._samples, self._decay)
            a, b = _coefficients(_shape(*columns, self._prior), *columns)
            self._model = StageModel(a=a, b=b)
        else:
            self._model = self._prior
        self._fit = None
        return verdict

    @property
    def model(self) -> StageModel | None:
        """What predicts the next unit: the fit, else the prior; None with neither."""
        return self._model

    @property
    def fit(self) -> Fit | None:
        """The current fit with its confidence; None until it has enough samples. Costs a fraction of a millisecond."""
        if self._fit is None and len(self._samples) >= self._minimum:
            self._fit = fit(tuple(self._samples), self._decay, self._prior)
        return self._fit

    @property
    def errors(self) -> Errors | None:
        """Errors of the last forecasts, each made before its unit was entered; None before there was one."""
        return summary(list(self._errors))

    @property
    def drifts(self) -> tuple[Verdict, ...]:
        """The changes found so far, oldest first."""
        return tuple(self._drifts)

    def _compare(self, sample: Sample) -> Verdict:
        predicted = 0.0 if self._model is None else self._model.seconds(sample.workload, sample.replicas)
        if predicted == 0:
            return STEADY
        self._errors.append(abs(predicted - sample.seconds) / sample.seconds)
        return self._test.observe(sample.seconds / predicted - 1)

    def _forget(self, verdict: Verdict) -> None:
        assert verdict.since is not None
        assert self._model is not None
        self._drifts.append(verdict)
        for _ in range(len(self._samples) - (self._test.observed - verdict.since)):
            self._samples.popleft()
        x, y, w = _columns(self._samples, self._decay)
        a, b = _coefficients(_scaled(self._model), x, y, w)
        self._prior = StageModel(a=a, b=b)


def _columns(samples: Iterable[Sample], decay: float) -> tuple[Array, Array, Array]:
    """W/d, seconds and weights."""
    rows = np.array([(sample.workload / sample.replicas, sample.seconds) for sample in samples])
    ages = np.arange(len(rows) - 1, -1, -1, dtype=np.float64)
    return rows[:, 0], rows[:, 1], np.power(decay, ages)


# A shape holds the free coefficients as columns of (a, b): the model is their combination, times what the fit finds.
FREE: Array = np.eye(2)
ORIGIN: Array = np.array([[0.0], [1.0]])
CONSTANT: Array = np.array([[1.0], [0.0]])


def _scaled(prior: StageModel) -> Array:
    return np.array([[prior.a], [prior.b]])


def _shape(x: Array, y: Array, w: Array, prior: StageModel | None) -> Array:
    """Which of a and b the samples can tell."""
    mean = float(w @ x / w.sum())
    spread = math.sqrt(float(w @ (x - mean) ** 2 / w.sum())) / mean
    has_shape = prior is not None and prior.a + prior.b > 0
    if prior is not None and has_shape and spread < NARROW_LOAD:
        return _scaled(prior)
    if spread < SAME_LOAD:
        return ORIGIN
    a, b = _coefficients(FREE, x, y, w)
    if b < 0:
        return _scaled(prior) if prior is not None and has_shape else CONSTANT
    return FREE if a >= 0 else ORIGIN


def _coefficients(shape: Array, x: Array, y: Array, w: Array) -> tuple[float, float]:
    """a and b of the least-squares optimum within the shape."""
    if shape is FREE:
        total = w.sum()
        x_mean, y_mean = w @ x / total, w @ y / total
        b = float(w @ ((x - x_mean) * (y - y_mean)) / (w @ (x - x_mean) ** 2))
        return float(y_mean - b * x_mean), b
    basis = shape[0, 0] + shape[1, 0] * x
    factor = float(w @ (basis * y) / (w @ basis**2))
    return factor * float(shape[0, 0]), factor * float(shape[1, 0])


def _confidence(
    shape: Array, x: Array, y: Array, w: Array, predicted: Array
) -> tuple[float, tuple[float, float, float]]:
    """Relative noise, and variances of a and b with their covariance.

    The weights tell age, not precision, hence the sandwich (X'WX)^-1 X'W V W X (X'WX)^-1, V the noise of each sample.
    """
    design = np.stack([np.ones_like(x), x], axis=1) @ shape
    bread = np.linalg.inv(design.T @ (w[:, None] * design))
    used = float(np.trace(bread @ (design.T @ ((w**2)[:, None] * design))))
    noise = math.sqrt(float(w @ ((y - predicted) / predicted) ** 2) / (float(w.sum()) - used))
    meat = design.T @ (((w * noise * predicted) ** 2)[:, None] * design)
    covariance = shape @ bread @ meat @ bread @ shape.T
    return noise, (max(0.0, float(covariance[0, 0])), max(0.0, float(covariance[1, 1])), float(covariance[0, 1]))


def _errors(relative: Array) -> Errors:
    middle, high = np.quantile(relative, (0.5, 0.9))
    return Errors(median=float(middle), p90=float(high), count=len(relative))


def summary(relative: Sequence[float]) -> Errors | None:
    """Of relative errors; None without any."""
    return _errors(np.asarray(relative)) if relative else None
