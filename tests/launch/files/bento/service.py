import bentoml
import fastapi

ENGINE_CONFIG = {"model": "Qwen/Qwen3-32B", "max_model_len": 4096, "enable_prefix_caching": True}
app = fastapi.FastAPI()


@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="chat", traffic={"timeout": 300}, resources={"gpu": 2, "gpu_type": "nvidia-a100-80gb"})
class VLLM:
    model_id = ENGINE_CONFIG["model"]
    model = bentoml.models.HuggingFaceModel(model_id, exclude=["*.pth"])

    def __init__(self) -> None:
        from vllm import AsyncEngineArgs, AsyncLLMEngine

        args = AsyncEngineArgs(**dict(ENGINE_CONFIG, model=self.model), tensor_parallel_size=2)
        self.engine = AsyncLLMEngine.from_engine_args(args)
