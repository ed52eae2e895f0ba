"""An installed engine measures: its own worker runs in a process of its own, and what it holds is told here.

start, speaker   the child's side: a script for the engine's interpreter, and lines of JSON on its output
workers/         what each engine is asked, one file an engine (imports the engine, nothing else of kvplan)
process          the parent's side: starts, listens, times out, kills; a crash becomes a clear error
messages         the lines as values
question         what the child is given: a config.json, the plan's own arguments, the shape of a request
shapes           the plan in the engine's own memory, and the requests that it is asked to serve
judged           what was measured beside what the plan predicts: figures and findings
run              all of it for one plan: an outcome that makes a receipt
serving, load    the engine's server on the same arguments: its log, its metrics, requests of the plan's shape
"""
