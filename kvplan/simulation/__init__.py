"""A wing: deployments on a workload, in virtual time. The core reads it by name (`kvplan.wings`).

vllm/ sglang/ trtllm/   each engine's scheduler and block manager, step by step; `schedulers` knows all
time/                   what they share: arrivals as runs of blocks, step times, the timeline, results
load/                   the requests: of a trace, generated, a closed loop
fleet/                  several replicas: routers, prefill and decode apart
cache_only/             a prefix cache on a trace, without time
served, deployed        what is simulated: pools, speeds and schedulers of a deployment, or of a plan
answer, search, outcome, results, shown   runs, what they say together, its documented JSON
requirements, preemption, calibrate       for `check`, for `plan`, and step times from measurements
"""
