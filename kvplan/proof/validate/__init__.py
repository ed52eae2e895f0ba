"""Proof on the target: a real paged cache is allocated, filled through block tables, read back and compared.

`target` says what is to be proved, `workload_test` proves it on one rank (with `blocks`, `slots`, `fill`,
`checks` and `attention`), `stages/` measures each line of the budget, `rank_run` is their order on one rank,
`session` all ranks in step, `limit` the ladder to the limit, `receipts` the file.

torch is imported inside functions of this package only. On ``cpu`` the same code runs on host memory: a
rehearsal, which proves layout and arithmetic and never the capacity of a GPU.
"""
