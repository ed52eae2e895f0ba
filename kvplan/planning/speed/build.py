"""From tensors, terms and rates to a `SpeedProfile`."""

from __future__ import annotations

from functools import lru_cache

from kvplan.assumption import Assumption, Assumptions
from kvplan.engines.base import served_dtype
from kvplan.errors import RefusedError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.planning.speed.links import fabric
from kvplan.planning.speed.peaks import arithmetic_of, generation_of, memory_rate, peak_for, sixteen_bit
from kvplan.planning.speed.profile import Deployment, Experts, Matrices, SpeedProfile, Stage
from kvplan.planning.speed.work import Pile, StageWork, draft_work, rank_work
from kvplan.record import replace
from kvplan.settings import Settings
from kvplan.weights.inventory import Inventory
from kvplan.weights.ranks import Parallel


@lru_cache(maxsize=4096)
def speed_profile(
    model: Model,
    gpu: Gpu,
    inventory: Inventory,
    experts_per_token: int,
    deployment: Deployment,
    table: Assumptions,
) -> SpeedProfile:
    """The profile of a deployment, with its `limits`; made once for each set of arguments.

    Raises RefusedError: unknown-peak, unknown-bandwidth, unknown-link, no-speed-rule, cannot-shard.
    """
    if model.encoder is not None:
        raise RefusedError("no-speed-rule", f"{model.id} has an encoder: its speed is not estimated")
    own = _Builder(model, gpu, inventory, experts_per_token, deployment, table).profile()
    peak = _Builder(model, gpu, inventory, experts_per_token, deployment, _at_peak(table)).profile()
    stages = tuple(replace(stage, token_seconds=0.0) for stage in peak.stages)
    return replace(own, limits=replace(peak, stages=stages, send_seconds=(0.0, 0.0)))


def draft_stage(
    model: Model,
    gpu: Gpu,
    inventory: Inventory,
    experts_per_token: int,
    deployment: Deployment,
    table: Assumptions,
) -> Stage:
    """One pass of the model's own prediction layers. Raises as `speed_profile`."""
    return _Builder(model, gpu, inventory, experts_per_token, deployment, table).draft()


_PEAK = {"share": 1.0, "s": 0.0, "tokens": 0.0}
"""Unit of an assumption → its value where nothing is lost: kernels reach the peak, nobody waits."""


@lru_cache(maxsize=64)
def _at_peak(table: Assumptions) -> Assumptions:
    return Assumptions(
        {name: replace(one, value=_PEAK.get(one.unit, one.value)) for name, one in table.by_name.items()}
    )


@lru_cache(maxsize=4096)
def own_entry(table: Assumptions, name: str, engine: str, release: tuple[int, ...]) -> str:
    """The entry of an engine's release: ``host_seconds.vllm-0.13`` up to release 0.13, ``host_seconds.vllm``
    after it and of none; ``host_seconds.other`` of engines without rows."""
    start = f"{name}.{engine}-"
    older = {
        tuple(map(int, key.removeprefix(start).split("."))): key
        for key in table.by_name if key.startswith(start)
    }  # fmt: skip
    for last in sorted(older):
        if release and release[: len(last)] <= last:
            return older[last]
    own = f"{name}.{engine}"
    return own if own in table else f"{name}.other"


class _Builder:
    def __init__(
        self,
        model: Model,
        gpu: Gpu,
        inventory: Inventory,
        experts_per_token: int,
        deployment: Deployment,
        table: Assumptions,
    ) -> None:
        self.model, self.gpu, self.inventory, self.table = model, gpu, inventory, table
        self.deployment, self.experts_per_token = deployment, experts_per_token
        self.used: dict[str, Assumption] = {}
        self.dtype = served_dtype(model, Settings(dtype=deployment.dtype))
        # Kernels get less out of other makers' devices: one share for all, one ratio for their own times.
        own = gpu.vendor != "nvidia"
        self.generation = generation_of(gpu)
        self.maker_share = self._take("maker_share.other") if own else 1.0
        self.kernel_ratio = self._take("kernel_ratio.other") if own else 1.0
        self.parallel = Parallel(
            deployment.tensor_parallel_size,
            deployment.pipeline_parallel_size,
            deployment.data_parallel_size,
            deployment.enable_expert_parallel,
        )
        if not replace(self.parallel, compute_capability=gpu.compute_capability).has_router_kernels:
            self.parallel = replace(self.parallel, compute_capability=gpu.compute_capability)
        rate = self._note(memory_rate(gpu))
        self.read_seconds = 1.0 / (rate.value * self._share("memory_efficiency"))
        self.inside = fabric(gpu, deployment.tensor_parallel_size, deployment.network, table)
        for entry in self.inside.assumptions:
            self._note(entry)

    def profile(self) -> SpeedProfile:
        deployment = self.deployment
        work = rank_work(
            self.model,
            self.inventory,
            self.parallel,
            deployment.decode_context_parallel_size,
            self.dtype,
            self._cache_dtype(),
        )
        stages = [self._stage(stage) for stage in work]
        sixteen = sixteen_bit(self.gpu, self.dtype.name)
        self._note(sixteen.assumption)
        attention = sixteen.flops_per_second * self._share("compute_efficiency.attention")
        cache_rate = memory_rate(self.gpu).value * self._share("cache_efficiency")
        return SpeedProfile(
            deployment,
            tuple(self._scaled(stages)),
            1.0 / cache_rate,
            1.0 / attention,
            self._send(),
            (
                self._take_own("host_seconds"),
                self._take_own("host_seconds_per_request"),
                self._take_own("host_seconds_per_prompt"),
            ),
            0 if deployment.enforce_eager else round(self._take_own("graph_tokens")),
            self._take("hidden_share"),
            self._take_own("frontend_seconds"),
            self.table,
            tuple(self.used.values()),
            self.generation,
        )

    def draft(self) -> Stage:
        """The model's own prediction layers as a stage."""
        context_ways = self.deployment.decode_context_parallel_size
        return self._stage(
            draft_work(
                self.model, self.inventory, self.parallel, context_ways, self.dtype, self._cache_dtype()
            )
        )

    def _cache_dtype(self) -> str:
        """The cache's format as asked, else the one that the checkpoint brings scales for."""
        asked = self.deployment.kv_cache_dtype
        scheme = self.model.facts.get("serving_kv_scheme", self.model.kv_cache_scheme)
        return scheme if asked == "auto" and isinstance(scheme, str) and scheme else asked

    def _share(self, name: str) -> float:
        """An efficiency on this maker's devices."""
        return self._take(self._here(name)) * self.maker_share

    def _here(self, name: str) -> str:
        """The GPU's generation's own entry, where rows tell it apart."""
        own = f"{name}.{self.generation}"
        return own if own in self.table else name

    def _take_own(self, name: str) -> float:
        """The engine's own value, or that of engines of which nobody published any."""
        deployment = self.deployment
        return self._take(own_entry(self.table, name, deployment.engine, deployment.release))

    def _note(self, entry: Assumption) -> Assumption:
        return self.used.setdefault(entry.name, entry)

    def _take(self, name: str) -> float:
        return self._note(self.table[name]).value

    def _send(self) -> tuple[float, float]:
        """Hidden states from one stage to the next; across nodes where a stage fills one."""
        pipeline, ways = self.deployment.pipeline_parallel_size, self.deployment.tensor_parallel_size
        if pipeline == 1:
            return (0.0, 0.0)
        link = fabric(self.gpu, pipeline * ways, self.deployment.network, self.table)
        for entry in link.assumptions:
            self._note(entry)
        return (link.hop, self.model.hidden_size * self.dtype.bytes * link.seconds_per_byte)

    def _stage(self, work: StageWork) -> Stage:
        fixed, per_token = self._between(work)
        return Stage(
            tuple(self._matrices(pile) for pile in work.piles if not pile.experts),
            tuple(
                Experts(
                    self._matrices(pile, work.routed),
                    pile.experts,
                    self._chosen(pile.experts),
                    self._take("expert_padding"),
                )
                for pile in work.piles
                if pile.experts
            ),
            tuple(self._matrices(pile) for pile in work.head),
            work.caches,
            fixed,
            work.layers * self._take_own("prompt_layer_seconds") * self.kernel_ratio,
            per_token,
        )

    def _matrices(self, pile: Pile, routed: int = 0) -> Matrices:
        peak = peak_for(pile.form, pile.dtype, self.gpu)
        self._note(peak.assumption)
        experts = "expert_" if pile.experts else ""
        share = self._share(f"{experts}compute_efficiency.{arithmetic_of(peak, pile.form)}")
        share *= self._take_own("engine_compute_share")
        read = self.read_seconds
        if peak.weights_only:
            share *= self._take("weights_only_share")
        if pile.experts:
            share *= self._filled(pile, routed)
            read /= self._take("expert_memory_share")
        token_seconds = pile.flops / (peak.flops_per_second * share)
        return Matrices(pile.bytes, pile.flops, pile.bytes * read, token_seconds)

    def _filled(self, pile: Pile, routed: int) -> float:
        """A kernel's speed on an expert that is narrow on its rank: w / (w + narrow) of the full one. w: the
        columns of its middle, from operations of three matrices of hidden · w each."""
        width = (
            pile.flops
            * self.parallel.whole_expert_ways
            / (6 * self.model.hidden_size * pile.experts * max(1, routed))
        )
        return width / (width + self._take(self._here("expert_narrow"))) if width else 1.0

    def _chosen(self, experts: int) -> int:
        if not 1 <= self.experts_per_token <= experts:
            raise RefusedError(
                "no-speed-rule",
                f"how many of its {experts} experts a token of {self.model.id} uses is not known",
            )
        return self.experts_per_token

    def _between(self, work: StageWork) -> tuple[float, float]:
        """Kernels' own time and the collectives of a stage: (whatever the batch, for each token)."""
        mixers, plain, routed = work.mixers, work.plain, work.routed
        fixed = (mixers + plain) * self._take("sublayer_seconds")
        if routed:
            fixed += routed * self._take("moe_seconds")
        quantised = sum(
            times for times, forms in work.formats
            if any(not peak_for(form, self.dtype.name, self.gpu).weights_only for form in forms)
        )  # fmt: skip
        if quantised:
            fixed += quantised * self._take("quantise_seconds")
        fixed *= self.kernel_ratio
        if self.deployment.enforce_eager:
            fixed += (mixers + plain + routed) * self._take("eager_seconds")
        message = self.model.hidden_size * self.dtype.bytes
        per_token = (mixers + plain) * (self.inside.all_reduce(message) - self.inside.latency)
        fixed += (mixers + plain) * self.inside.latency
        if self.deployment.decode_context_parallel_size > 1:
            fixed += mixers * self.inside.latency
        if routed:
            one, latency = self._exchange(message)
            per_token += routed * one
            fixed += routed * latency
        return fixed, per_token

    def _exchange(self, message: float) -> tuple[float, float]:
        """Seconds for each token of a rank, and latency, of one layer's routed experts."""
        data = self.deployment.data_parallel_size
        if data == 1:
            return self.inside.all_reduce(message) - self.inside.latency, self.inside.latency
        link = fabric(self.gpu, self.parallel.expert_ways, self.deployment.network, self.table)
        for entry in link.assumptions:
            self._note(entry)
        if not self.deployment.enable_expert_parallel:  # gathered, then reduced and scattered
            return data * (link.all_reduce(message) - link.latency), 2 * link.latency
        ways = self.parallel.expert_ways
        sent = message * min(self.experts_per_token, ways) / self.deployment.tensor_parallel_size
        return 2 * (link.all_to_all(sent) - link.latency), 2 * link.latency

    def _scaled(self, stages: list[Stage]) -> list[Stage]:
        """The stages with the bytes that a rank is known to hold, where somebody knows them."""
        known = self.deployment.weight_bytes_per_rank
        if known is None:
            return stages
        share = known / max(stage.weight_bytes for stage in stages)

        def scaled(parts: tuple[Matrices, ...]) -> tuple[Matrices, ...]:
            return tuple(
                replace(part, bytes=round(part.bytes * share), read_seconds=part.read_seconds * share)
                for part in parts
            )

        return [
            replace(
                stage,
                dense=scaled(stage.dense),
                head=scaled(stage.head),
                experts=tuple(replace(entry, all=scaled((entry.all,))[0]) for entry in stage.experts),
            )
            for stage in stages
        ]
