"""An installed engine measures: its own worker runs in a process of its own, and what it holds is told here.

`start` and `speaker` are the child's side, `process` the parent's, which makes a crash a clear error;
`workers/` import the engine and nothing else of kvplan. `question` is what the child is given, `messages` its
lines as values, `shapes` and `judged` the plan beside what was measured; `run` does all of it, `serving` and
`load` do it with the engine's server.
"""
