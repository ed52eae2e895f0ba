"""Launch files read as plans: command lines, Compose files, Kubernetes manifests, charts.

`read.launches_of` is the way in; `launch.Launch` is one server. A value is taken only where the engine's
own parser would take it so; every option, variable or key that has no rule is named in `Launch.unread`.
"""
