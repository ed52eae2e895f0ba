"""Deployments: a question, the servers that would be started for it, and what they hold.

    Question ─ resolve ─▶ Deployment ─ answered ─▶ Answer (Capacity, Verdict)

| file | what it has |
| --- | --- |
| `question` | what somebody wants to run, as they said it |
| `resolve` | every setting resolved once; GPUs dealt to replicas, requests to pools |
| `answer` | memory, layout and capacity of the deployment, and whether it holds the load |
| `counts` · `held` | how many requests a pool runs; what they hold, by the same law |
| `rows` · `lengths` · `machines` | answers side by side: a row each, by length, by GPU |
| `mix` · `least` | requests of several lengths; the least that holds a load |
| `fixes` · `gpus` | changes with which the load is held, each tried |
| `parallel` | GPUs of a replica and the pools in it |
"""
