import bentoml
import pydantic


class Arguments(pydantic.BaseModel):
    model_id: str = "Qwen/Qwen3-8B"
    max_model_len: int = 8192
    gpu_memory_utilization: float = 0.85
    disable_log_stats: bool = True


arguments = bentoml.use_arguments(Arguments)


@bentoml.service(resources={"gpu": 1, "gpu_type": "nvidia-h100-80gb"})
class Chat:
    model = bentoml.models.HuggingFaceModel(arguments.model_id)

    @bentoml.on_startup
    async def begin(self) -> None:
        import vllm.entrypoints.openai.api_server as server
        from vllm.entrypoints.openai.cli_args import make_arg_parser
        from vllm.utils import FlexibleArgumentParser

        args = make_arg_parser(FlexibleArgumentParser()).parse_args([])
        for key, value in arguments.model_dump().items():
            setattr(args, key, value)
        args.model = self.model
        self.client = await self.stack.enter_async_context(server.build_async_engine_client(args))
