"""Proof on the target: a real paged cache is allocated, filled through block tables, read back and compared.

`target` says what is to be proved, `workload_test` proves it on one rank (with `blocks`, `slots`, `fill`,
`checks` and `attention`), `stages/` measures each line of the budget; `rank_run` does both in order on one
rank, `session` keeps all ranks in step, `limit` raises the load to the limit, `receipts` writes the file.

torch is imported inside functions of this package only. On ``cpu`` the same code runs on host memory: a
rehearsal of layout and arithmetic, not of a GPU's capacity.
"""
