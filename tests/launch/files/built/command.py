import json

import bentoml
import pydantic


class Arguments(pydantic.BaseModel):
    tp: int = 1
    dp: int | None = None
    gpu_type: str = "nvidia-h100-80gb"
    model_id: str = "Qwen/Qwen3-8B"
    max_model_len: int | None = None
    kv_cache_dtype: str | None = None
    cli_args: list[str] = pydantic.Field(default_factory=list)
    kv_transfer_config: dict[str, object] = pydantic.Field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        import torch

        found = ["-tp", f"{torch.cuda.device_count()}", *self.cli_args]
        if self.dp:
            found.extend(["-dp", f"{self.dp}"])
        if self.kv_cache_dtype:
            found.extend(["--kv-cache-dtype", self.kv_cache_dtype])
        if self.kv_transfer_config:
            found.extend(["--kv-transfer-config", json.dumps(self.kv_transfer_config)])
        if self.max_model_len:
            found.extend(["--max-model-len", str(self.max_model_len)])
        return found


arguments = bentoml.use_arguments(Arguments)


@bentoml.service(name="chat", resources={"gpu": arguments.tp, "gpu_type": arguments.gpu_type})
class Chat:
    model = bentoml.models.HuggingFaceModel(arguments.model_id)

    def __command__(self) -> list[str]:
        return ["vllm", "serve", self.model, *arguments.words, "--served-model-name", arguments.model_id]
