"""The parameters of the activation xIELU (Huang & Schlag 2024) from the values in a file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def xielu_parameters(stored: Floats) -> Floats:
    """alpha_p, alpha_n, beta and eps as the core takes them.

    A file has the two alphas before a softplus, which keeps them above 0, and alpha_n without
    beta.
    """
    alpha_p, alpha_n, beta, eps = stored.astype(np.float64)
    values = [np.logaddexp(0, alpha_p), beta + np.logaddexp(0, alpha_n), beta, eps]
    return np.array(values, np.float32)
