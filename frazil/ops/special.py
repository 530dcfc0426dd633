"""Special functions that NumPy lacks, for references only."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

# Rational approximations of W. J. Cody, "Rational Chebyshev approximations for the error function", Math.
# Comp. 23 (1969), numerators and denominators from the highest power down, on |x| <= 15/32, up to 4, and
# beyond.
_SMALL = (
    (
        0.185777706184603153,
        3.16112374387056560,
        113.864154151050156,
        377.485237685302021,
        3209.37758913846947,
    ),
    (1.0, 23.6012909523441209, 244.024637934444173, 1282.61652607737228, 2844.23683343917062),
)
_MIDDLE = (
    (
        2.15311535474403846e-8,
        0.564188496988670089,
        8.88314979438837594,
        66.1191906371416295,
        298.635138197400131,
        881.952221241769090,
        1712.04761263407058,
        2051.07837782607147,
        1230.33935479799725,
    ),
    (
        1.0,
        15.7449261107098347,
        117.693950891312499,
        537.181101862009858,
        1621.38957456669019,
        3290.79923573345963,
        4362.61909014324716,
        3439.36767414372164,
        1230.33935480374942,
    ),
)
_LARGE = (
    (
        0.0163153871373020978,
        0.305326634961232344,
        0.360344899949804439,
        0.125781726111229246,
        0.0160837851487422766,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242,
        1.87295284992346725,
        0.527905102951428412,
        0.0605183413124413191,
        2.33520497626869185e-3,
    ),
)
_SQRT_PI = 1.7724538509055160273


def erf(xp: ModuleType, x: Any) -> Any:
    """Error function, computed in float64 and returned in the type of `x`."""
    wide = xp.asarray(x, dtype=np.float64)
    size = xp.minimum(xp.abs(wide), 30.0)
    square = size * size
    small = size * _ratio(xp, _SMALL, xp.minimum(square, 0.25))
    bounded = xp.clip(size, 0.46875, 4.0)
    middle = 1.0 - xp.exp(-bounded * bounded) * _ratio(xp, _MIDDLE, bounded)
    far = xp.maximum(size, 4.0)
    inverse = 1.0 / (far * far)
    large = 1.0 - xp.exp(-far * far) / far * (1.0 / _SQRT_PI - inverse * _ratio(xp, _LARGE, inverse))
    result = xp.where(size <= 0.46875, small, xp.where(size <= 4.0, middle, large))
    return xp.where(xp.isnan(wide), wide, xp.copysign(result, wide)).astype(xp.asarray(x).dtype)


def _ratio(xp: ModuleType, coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Any) -> Any:
    return xp.polyval(coefficients[0], x) / xp.polyval(coefficients[1], x)
