"""A wing: deployments on a workload, in virtual time. The core reads it by name (`kvplan.wings`).

`served` and `deployed` say what is simulated. `vllm/`, `sglang/` and `trtllm/` have each engine's scheduler
and block manager, step by step; `time/` what they share, `load/` the requests, `fleet/` several replicas,
`cache_only/` a prefix cache on a trace, without time. `answer` and `search` run them, `outcome`, `results`
and `shown` say what came of it.
"""
