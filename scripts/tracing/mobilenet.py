"""What Gemma 3n's encoder of images takes: the figure of `Encoder.item_bytes`.

    PYTHONPATH=.:TIMM .venv-vllm/bin/python -m scripts.tracing.mobilenet

Its tower is timm's mobilenetv5_300m_enc, run by transformers' wrapper as it stands, all images at once
(vllm/model_executor/models/gemma3n_mm.py, 0.32). TIMM: a folder with timm 1.0.22. Prints, for one, two and
four images of 768 x 768 pixels, the most bytes alive and those that stay, without the images themselves.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from typing import Any
from unittest.mock import MagicMock

from scripts.tracing.live_set import LiveSet, print_peaks


class NoTorchvision:
    """timm's transforms of images, which are not run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__version__ = [], spec, "0.28"
        return module

    def exec_module(self, module: Any) -> None: ...


def main() -> int:
    import torch

    sys.meta_path.append(NoTorchvision())
    timm: Any = importlib.import_module("timm")
    model = timm.create_model("mobilenetv5_300m_enc", pretrained=False, num_classes=0)
    model = model.to(torch.bfloat16).eval()

    def inputs(images: int) -> Any:
        return torch.zeros(images, 3, 768, 768, dtype=torch.bfloat16)

    def run(pixels: Any) -> Any:
        return model.forward_features(pixels).reshape(len(pixels), 2048, 256)

    print_peaks(LiveSet(), model, inputs, run)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
