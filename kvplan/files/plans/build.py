"""From a validated plan file to a `Plan`: flags to settings, lengths to shapes, paths to files."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from kvplan.architectures.config.drafts import method_of
from kvplan.engines import default_engine
from kvplan.errors import KvplanError, Mark
from kvplan.files.folders import exists, is_folder
from kvplan.files.gpus.find import gpu_of_size, load_gpu, parse_gpu_count
from kvplan.files.gpus.listed import find_slugs, load_gpu_file
from kvplan.files.plans.schema import (
    EvidenceEntry,
    FleetEntry,
    PercentileEntry,
    RequireEntry,
)
from kvplan.files.plans.values import MOST_GPUS
from kvplan.files.plans.workload import WorkloadParts
from kvplan.files.sources import open_model
from kvplan.files.yaml.marks import Path as Place
from kvplan.gpu import Gpu
from kvplan.own_options import OwnOptions
from kvplan.plans.plan import (
    DEFAULT_MAX_AGE_DAYS,
    DEFAULT_PERCENTILE,
    DEFAULT_TOLERANCE,
    Evidence,
    FleetPlan,
    Plan,
    Requirements,
)
from kvplan.plans.serve import EngineFlags, kept, parse_flag
from kvplan.plans.workload import Workload
from kvplan.record import replace
from kvplan.settings import Settings

_FILES = (".json", ".yaml", ".yml", ".gguf", ".safetensors")
_SPECULATIVE = "speculative"


class Builder(WorkloadParts):
    """Builds one plan and collects what is wrong with it."""

    def build(
        self, *, name: str, path: str, environment: str | None, environments: tuple[str, ...],
        files: tuple[str, ...], marks: Mapping[str, Mark],
    ) -> tuple[Plan | None, list[KvplanError], tuple[str, ...]]:  # fmt: skip
        """(plan, errors, further files); no plan where there are errors."""
        file = self.file
        gpu = self.attempt(self.gpu, ("gpu",))
        engine = file.engine or self.usual_engine(gpu)
        flags = self.attempt(lambda: self.engine_of(engine), ("engine",))
        settings = self.settings(flags, gpu) if flags is not None else None
        workload = self.workload(file.workload) if file.workload is not None else None
        require = self.require(file.require, workload)
        evidence = self.evidence()
        model = self.model()
        if self.errors and model != "-" and not model.startswith("hf:"):
            self.attempt(lambda: open_model(model), ("model",))  # every mistake is said at once
        if self.errors or flags is None or settings is None:
            return None, self.errors, tuple(self.used)
        if flags.note is not None:
            self.notes.append(flags.note)
        plan = Plan(
            name=name,
            model=model,
            engine=flags.spec,
            gpus=1,
            settings=settings,
            serve=tuple((flag, kept(value)) for flag, value in file.serve.items()),
            workload=workload,
            require=require,
            fleet=self.fleet(file.fleet),
            quality=file.quality,
            tolerance=DEFAULT_TOLERANCE if file.tolerance is None else file.tolerance,
            price_per_gpu_hour=file.price_per_gpu_hour,
            evidence=evidence,
            environment=environment,
            path=path,
            marks=marks,
            environments=environments,
            notes=tuple(self.notes),
        )
        plan = self.counted(plan, flags)
        used = (*files, *self.used)
        return (
            (None, self.errors, tuple(self.used))
            if self.errors
            else (replace(plan, files=used), [], tuple(self.used))
        )

    def usual_engine(self, gpu: Gpu | None) -> str:
        """The engine of a plan that names none. The hub is not asked for it."""
        word = self.file.serve.get("quantization")
        try:
            models = [] if str(self.file.model).startswith("hf:") else [open_model(self.model())]
        except KvplanError:
            models = []  # said where the model is read
        return default_engine(models, word if isinstance(word, str) else None, (gpu,))

    def gpu(self) -> Gpu:
        text = str(self.file.gpu)
        if text.strip().lower() == "auto":
            raise KvplanError(
                "bad-gpu", "a plan names its GPU: `auto` is another one on every machine",
                help="kvplan list gpus lists the names",
            )  # fmt: skip
        if text.lower().endswith((".yaml", ".yml")):
            path = self.beside(text, ("gpu",))
            self.used.append(str(path))
            return load_gpu_file(path)
        if "+" in text and not find_slugs(text):
            raise KvplanError(
                "bad-gpu", f"`{text}` are of several kinds, and a plan has one",
                help=f"kvplan size MODEL --engine llamacpp --gpu {text}",
            )  # fmt: skip
        name, count = parse_gpu_count(text)
        if count != 1:
            raise KvplanError("bad-gpu", f"`{text}` has a number in it", help=f"gpu: {name}\ngpus: {count}")
        return gpu_of_size(name) or load_gpu(name)

    def settings(self, flags: EngineFlags, gpu: Gpu | None) -> Settings | None:
        values: dict[str, Any] = {}
        own: dict[str, object] = {}
        before = len(self.errors)
        for name, value in self.file.serve.items():
            place = ("serve", name)
            flag = self.attempt(lambda name=name: flags.flag(str(name)), place, at_key=True)  # type: ignore[misc]
            if flag is None:
                continue
            parsed = self.attempt(lambda flag=flag, value=value: parse_flag(flag, value), place)  # type: ignore[misc]
            if parsed is None or flag.setting is None:
                continue
            found = {flag.setting: parsed}
            if flag.setting == _SPECULATIVE:
                speculation = self.attempt(lambda parsed=parsed: self.speculation(*parsed), (*place, "model"))  # type: ignore[misc]
                if speculation is None:
                    continue
                found = speculation
            if flag.setting in values or flag.setting in own:
                self.fail(
                    KvplanError("bad-flag", f"`{name}` sets what another flag sets"), place, at_key=True
                )
            elif flag.own is not None:
                own.update(found)
            elif self.attempt(lambda found=found: Settings(**found), place) is not None:  # type: ignore[misc]
                values.update(found)
        if len(self.errors) > before:
            return None
        if self.file.weights is not None:
            values["weights"] = self.file.weights
        return Settings(gpu=gpu, own=OwnOptions.of(own), **values)

    def speculation(self, method: str | None, tokens: int, model: str | None) -> dict[str, Any]:
        """The settings of ``speculative_config``; a draft model is read as the plan's model is."""
        found: dict[str, Any] = {"speculative_method": method, "num_speculative_tokens": tokens}
        if model is not None:
            path = self.beside(model, ("serve",))
            draft = open_model(str(path) if exists(path) else model, as_draft=True)
            found |= {"speculative_model": draft, "speculative_method": method or method_of(draft)}
        return found

    def counted(self, plan: Plan, flags: EngineFlags) -> Plan:
        """The plan with all its GPUs; an engine that spreads over what it sees gets a replica's share."""
        gpus, replicas = self.file.gpus, self.file.replicas
        if flags.spread is not None and gpus is not None:
            share = max(gpus // (replicas or 1), 1)
            plan = replace(plan, settings=replace(plan.settings, **{flags.spread: share}))
        each = plan.gpus_per_replica
        split = plan.fleet.prefill_replicas + plan.fleet.decode_replicas
        total = gpus if gpus is not None else (replicas or split or 1) * each
        if gpus is not None and replicas is not None and replicas * each != gpus:
            wrong = f"{replicas} replicas of {each} GPUs are {replicas * each} GPUs, not {gpus}"
            self.fail(KvplanError("bad-gpus", wrong, help="leave one of gpus and replicas out"), ("gpus",))
        elif total > MOST_GPUS:
            self.fail(KvplanError("bad-gpus", f"{total:,} GPUs are more than {MOST_GPUS:,}"), ("replicas",))
        elif split and total // each != split:
            kinds = f"{plan.fleet.prefill_replicas} to prefill and {plan.fleet.decode_replicas} to decode"
            wrong = f"replicas: {kinds} are {split}, not {total // each}"
            where = ("replicas",) if gpus is None else ("gpus",)
            self.fail(KvplanError("bad-replicas", wrong, help="leave replicas and gpus out"), where)
        return replace(plan, gpus=total)

    def model(self) -> str:
        """A card's name or ``hf:…`` as it is; a path from the folder of the file that it stands in."""
        text = str(self.file.model)
        if text.startswith("hf:") or text == "-":
            if text == "-":
                self.fail(
                    KvplanError("bad-model", "a plan cannot take its model from standard input"), ("model",)
                )
            return text
        path = self.beside(text, ("model",))
        rooted = text.startswith((".", "/", "~")) or text.lower().endswith(_FILES)
        if not rooted and not exists(path):
            return text
        config = path / "config.json"
        if is_folder(path):
            self.used += [str(config), str(path / "hf_quant_config.json")]
        self.used.append(str(path))
        return str(path)

    def fleet(self, entry: FleetEntry | None) -> FleetPlan:
        if entry is None:
            return FleetPlan()
        if (entry.prefill_replicas is None) != (entry.decode_replicas is None):
            has, lacks = "prefill_replicas", "decode_replicas"
            if entry.prefill_replicas is None:
                has, lacks = lacks, has
            self.missing(f"fleet.{lacks}", ("fleet", has))
        return FleetPlan(
            router=entry.router or FleetPlan().router,
            offload=entry.offload or "",
            prefill_replicas=entry.prefill_replicas or 0,
            decode_replicas=entry.decode_replicas or 0,
            link=entry.link or 0,
        )

    def require(self, entry: RequireEntry, workload: Workload | None) -> Requirements:
        tokens = entry.tokens
        if entry.requests is not None and tokens is None:
            tokens = workload.longest if workload is not None else None
        if entry.requests is not None and tokens is None and not self.errors:
            self.missing("require.tokens", ("require", "requests"))
        if entry.tokens is not None and entry.requests is None:
            self.missing("require.requests", ("require", "tokens"))
        self._check_simulated(entry, workload)
        defaults = Requirements()
        return Requirements(
            requests=entry.requests,
            tokens=tokens,
            headroom=defaults.headroom if entry.headroom is None else entry.headroom,
            max_model_len=entry.max_model_len,
            max_cost_per_hour=entry.max_cost_per_hour,
            prefix_cache_bytes=entry.prefix_cache or 0,
            host_memory_bytes=entry.host_memory or 0,
            shm_bytes=entry.shm or 0,
            pool=entry.pool,
            goodput=entry.goodput,
            hit_rate=entry.hit_rate,
            preemptions=entry.preemptions,
            **_percentile("ttft", entry.ttft),
            **_percentile("tpot", entry.tpot),
        )

    def _check_simulated(self, entry: RequireEntry, workload: Workload | None) -> None:
        """Requirements that a simulation shows need arrivals: a trace, or a rate; goodput a target as
        well."""
        comes = workload is not None and (workload.trace or workload.requests_per_second)
        for name in ("goodput", "hit_rate", "preemptions", "ttft", "tpot"):
            if getattr(entry, name) is not None and not comes and not self.errors:
                self.missing("workload.requests_per_second", ("require", name), "trace")
        timed = workload is not None and (workload.ttft_seconds or workload.tpot_seconds)
        if entry.goodput is not None and not timed and not self.errors:
            self.missing("workload.ttft", ("require", "goodput"), "tpot")

    def evidence(self) -> tuple[Evidence, ...]:
        given: Any = self.file.evidence
        if given is None:
            return ()
        listed = isinstance(given, list)
        found = []
        for index, one in enumerate(given if listed else [given]):
            place: Place = ("evidence", index) if listed else ("evidence",)
            entry = one if isinstance(one, EvidenceEntry) else EvidenceEntry(path=one)
            path = self.beside(str(entry.path), (*place, "path") if isinstance(one, EvidenceEntry) else place)
            self.used.append(str(path))
            found.append(Evidence(str(path), entry.max_age or DEFAULT_MAX_AGE_DAYS))
        return tuple(found)


def _percentile(name: str, entry: PercentileEntry | Fraction | None) -> dict[str, Any]:
    """A requirement of a time, as the fields of `Requirements` have it."""
    if not isinstance(entry, PercentileEntry):
        return {f"{name}_seconds": entry}
    return {
        f"{name}_seconds": entry.at_most,
        f"{name}_percentile": DEFAULT_PERCENTILE if entry.p is None else entry.p,
    }
