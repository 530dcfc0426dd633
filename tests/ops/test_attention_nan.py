"""NaN in backward: harmless where a row sees nothing, kept where the row is live."""

from __future__ import annotations

import numpy as np
import pytest

import frazil
from frazil.dtypes import data_type

LIVE, DEAD = 4, 1  # of 6 rows over 4 keys; rows 0 and 1 see nothing


def gradients(poison: str, row: int, by_bias: bool = False, sink: float = 1.0) -> dict[str, np.ndarray]:
    """Gradients with NaN in one row of an operand; rows are hidden by the causal mask or by a bias of -inf."""
    rng = np.random.default_rng(6)
    dims = {"q": (1, 2, 6, 8), "k": (1, 2, 4, 8), "v": (1, 2, 4, 8), "o": (1, 2, 6, 8), "dO": (1, 2, 6, 8)}
    arrays = {n: rng.standard_normal(d).astype(np.float32) for n, d in dims.items()}
    arrays["stats"] = np.full((1, 2, 6, 1), sink + 4, np.float32)
    arrays["stats"][:, :, :2] = -np.inf
    arrays["sink"] = np.full((1, 2, 1, 1), sink, np.float32)
    arrays["bias"] = np.zeros((1, 1, 6, 1), np.float32)
    arrays["bias"][:, :, :2] = -np.inf if by_bias else 0
    if poison:
        arrays[poison][:, :, row] = np.nan
    graph = frazil.Graph(io_data_type=data_type.FLOAT, target="cpu")
    t = {n: graph.tensor(a.shape) for n, a in arrays.items()}
    pack = {t[n]: a for n, a in arrays.items()}
    d_sink = graph.tensor((1, 2, 1, 1))
    found = graph.sdpa_backward(
        *(t[n] for n in ("q", "k", "v", "o", "dO", "stats")),
        use_causal_mask_bottom_right=not by_bias,
        bias=t["bias"],
        sink_token=t["sink"],
        dSink_token=d_sink,
    )
    results = {}
    for name, tensor in zip(("dQ", "dK", "dV", "dSink"), (*found, d_sink), strict=True):
        tensor.set_output(True)
        shape = dims["q" if name == "dQ" else "k"] if name != "dSink" else (1, 2, 1, 1)
        results[name] = pack[tensor] = np.full(shape, 7, np.float32)
    graph.build()
    graph.execute(pack, graph.empty_workspace())
    return results


@pytest.mark.parametrize("poison", ["o", "dO", "stats"])
@pytest.mark.parametrize("by_bias", [False, True])
@pytest.mark.parametrize("sink", [1.0, 100.0])
def test_dead_row(poison: str, by_bias: bool, sink: float) -> None:
    """NaN in what the forward and the layers behind it left of a row that sees nothing changes nothing."""
    expected, got = gradients("", 0, by_bias, sink), gradients(poison, DEAD, by_bias, sink)
    for port, value in expected.items():
        assert np.isfinite(value).all(), port
        assert np.array_equal(got[port], value), port
    assert not got["dQ"][:, :, :2].any()


@pytest.mark.parametrize("poison", ["q", "o", "dO", "stats"])
def test_live_row(poison: str) -> None:
    """NaN of a live row reaches its gradients: a forward that went wrong is not turned into zeros."""
    got = gradients(poison, LIVE)
    assert np.isnan(got["dQ"][:, :, LIVE]).all()
    others = [r for r in range(6) if r != LIVE]
    assert np.isfinite(got["dQ"][:, :, others]).all()
    assert np.isnan(got["dK"][:, :, : LIVE - 1]).all()
