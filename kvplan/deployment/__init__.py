"""Deployments: a question, the servers that would be started for it, and what they hold.

    Question ─ resolve ─▶ Deployment ─ answered ─▶ Answer (Capacity, Verdict)

| files | |
| --- | --- |
| `question`, `resolve`, `answer`, `parallel` | the steps above |
| `counts`, `held` | how many requests a pool runs; what they hold |
| `rows`, `lengths`, `machines` | answers side by side: a row each, by length, by GPU |
| `mix`, `least` | requests of several lengths; the least that holds a load |
| `fixes`, `gpus` | changes with which the load is held, each tried |
"""
