"""These tests need torch, on the CPU; one thread, because other tests run beside them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install kvplan[gpu]")
torch.set_num_threads(1)
