"""Detect numbers that were rounded, are not finite, or cannot be normalised."""

from collections.abc import Iterator

import numpy as np

from fastgae._call import EPS, NUMBERS, ROLES, Array, Role
from fastgae._diagnose.report import Finding, Places
from fastgae._diagnose.steps import Steps, number_of

# Common coefficients, with two to four decimals.
USUAL = sorted({1 - k / 1000 for k in range(1, 10)} | {k / 100 for k in range(50, 100)} | {0.9995, 0.9997, 0.9999})


def coefficients(steps: Steps) -> Iterator[Finding]:
    """Find a gamma or lambda that was rounded to 16 bits."""
    for name in ("gamma", "gae_lambda", "returns_lambda"):
        given = getattr(steps.given, name)
        for number in np.unique(np.asarray([] if given is None else given, np.float64))[:16]:
            if round(number, 4) == number:
                continue  # a person may have written it
            meant = {
                kind: [usual for usual in USUAL if rounded(usual) == number]
                for kind, rounded in (("float16", lambda usual: float(np.float16(usual))), ("bfloat16", _bfloat16))
            }
            either = {kind: " or ".join(f"{each:.10g}" for each in usual) for kind, usual in meant.items() if usual}
            readings = [f"{usual} rounded to {kind}" for kind, usual in either.items()]
            if readings:
                nearest = min(meant["float16"] + meant["bfloat16"], key=lambda usual: abs(usual - number))
                yield Finding(
                    f"{name} is {number:.10g}, which looks like {', or '.join(readings)}",
                    Places(),
                    f"its horizon, 1 / (1 - {name}), is {1 / (1 - number):.5g} steps; the horizon of {nearest:.10g} is "
                    f"{1 / (1 - nearest):.5g}",
                    f"pass {name} as a Python float, not in the dtype of the network",
                )


def _bfloat16(number: float) -> float:
    """Return the number rounded to bfloat16: the upper half of a float32, rounded to nearest even."""
    bits = int(np.float32(number).view(np.uint32))
    bits += 0x7FFF + ((bits >> 16) & 1)
    return float(np.uint32(bits & 0xFFFF0000).view(np.float32))


def non_finite(steps: Steps) -> Iterator[Finding]:
    """Find NaN and infinity, and count the steps whose results they reach."""
    numbers = {name: array for name, array in steps.given._asdict().items() if name in NUMBERS and array is not None}
    for name, array in numbers.items():
        bad, truncated = ~np.isfinite(array), steps.given.truncated
        if name == "final_values" and array.shape == truncated.shape:
            bad &= truncated  # no other number is ever read
        if not bad.any():
            continue
        others = {each: np.nan_to_num(numbers[each], posinf=0.0, neginf=0.0) for each in numbers if each != name}
        result = steps.computed(steps.given._replace(**others))
        finite = np.isfinite(result.advantages) & np.isfinite(result.returns)
        reached = number_of(~steps.matrix(finite, bool) & steps.exists)
        nan, infinite = number_of(np.isnan(array) & bad), number_of(np.isinf(array) & bad)
        what = f"{name} holds {nan:,} NaN and {infinite:,} infinite of {array.size:,} numbers"
        where = _where(steps, name, bad)
        if reached:
            yield Finding(
                what,
                where,
                f"they reach {reached:,} of {number_of(steps.exists):,} steps: an advantage depends on all later steps "
                "of its episode",
                "find their cause, for example a value function that diverged, or memory that was never written",
            )
            continue
        why = "here they have no effect, but code that multiplies by a mask would spread them: 0 times NaN is NaN"
        change = "nothing, if they mark numbers that must not be read"
        if repeated := number_of(~steps.matrix(np.isfinite(result.returns), bool) & ~steps.exists):
            why = f"{repeated:,} returns repeat them outside of the mask, where 0 times NaN is NaN, too"
            change = (
                "index the loss by the mask, as in (values - returns)[mask], in place of multiplying it by the mask"
            )
        yield Finding(f"{what}, all where a flag or the mask leaves them out", where, why, change)


def _where(steps: Steps, name: str, bad: Array) -> Places:
    if ROLES[name] is Role.ENVS:
        return steps.places(bad.reshape(-1))
    return steps.places(steps.at_truncated(bad, False) if name == "final_values" else steps.matrix(bad, bool))


def normaliser(steps: Steps) -> Iterator[Finding]:
    """Find advantages whose mean is not finite or whose standard deviation is about 0."""
    if steps.given.normalize is None:
        return
    advantages, exists = steps.matrix(steps.computed().advantages), steps.exists
    one_each = steps.given.normalize == "per_env"
    groups = [advantages[exists[:, n], n] for n in range(steps.shape[1])] if one_each else [advantages[exists]]
    degenerate, spoiled = [], []
    for n, kept in enumerate(groups):
        if not np.isfinite(kept).all():
            spoiled.append(n)
        elif kept.size < 2 or kept.std() <= max(steps.noise, 10.0 * EPS):
            degenerate.append(n)
    for envs, what, why, change in (
        (
            spoiled,
            "are not all finite",
            "one NaN or infinity spoils the mean, and with it every advantage that is normalised by it",
            "find the numbers that are not finite before the normalisation",
        ),
        (
            degenerate,
            "do not vary beyond rounding, or there is only one",
            "it divides by a standard deviation of about 0, and gives 0, or rounding noise as large as advantages",
            'leave normalize out, or normalise over more steps (normalize="global", a longer rollout)',
        ),
    ):
        if envs:
            places = steps.places_of_envs(envs) if one_each else Places()
            whose = f"of {len(envs):,} of {len(groups):,} environments" if one_each else "of this rollout"
            yield Finding(f"the advantages {whose} {what}", places, why, change)
