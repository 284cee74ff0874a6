"""The random number behind every sampled token, a pure function of where the token stands.

Counter based, so it does not matter which replica samples the token, what else is in its batch, or how often the
response was interrupted: the prefix of a stream is the stream of the prefix.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EVALUATION_EPOCH = 2**63
"""Epoch of the evaluation streams: no pass over the training items has this number."""


def uniforms(seed: int, epoch: int, position: int, response: int, count: int) -> npt.NDArray[np.float64]:
    """float64 [count] in [0, 1); index p belongs to the response's token p.

    Philox 4x64 (Salmon et al. 2011) keyed by (seed, epoch), its counter starting at (0, 0, response, position). Raw
    words are turned into doubles here, since numpy keeps only the raw stream stable between versions.
    """
    words = np.random.Philox(
        key=np.array([seed, epoch], dtype=np.uint64), counter=np.array([0, 0, response, position], dtype=np.uint64)
    ).random_raw(count)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
