"""How mlx_lm's server is called: ml-explore/mlx-lm 0.32.2 mlx_lm/server.py and cli.py."""

from __future__ import annotations

from kvplan.engines.launch import Server

SERVER = Server(
    "mlx",
    starts=(("mlx_lm.server",), ("mlx_lm", "server"), ("-m", "mlx_lm", "server"), ("-m", "mlx_lm.server")),
    model=("--model",),
    images=(),
    package="mlx-lm",
)
