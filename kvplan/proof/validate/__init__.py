"""Proof on the target: a real paged cache is allocated, filled through block tables, read back and compared.

    layouts/      the tensors of one rank, exactly as each engine allocates and views them (pure)
    blocks, free  block tables and free queues: reference counts, prefix hits, copy-on-write, windows (pure)
    slots         slot mappings: where a request's tokens lie
    pattern       what is written: bits that follow from content, position, layer, head and component
    memory        the tensors, on any torch device; released on exit
    fill          write and check through slot mappings, in bounded chunks
    kinds, attention   attention over the paged cache beside the same values in a row
    checks        what must hold of tables at any time; fragmentation
    workload_test, findings  all of it for one rank, with progress and a cooperative stop, and what it found

    target        what is to be proved: a plan, its budget and its pool resolved for the place where it runs
    devices, probe, host, allocator   the place: meters, who else is there, how torch hands memory out
    stages/       weights, activations, graphs, pool, speeds, each against its line of the budget
    rank_run, session, limit   their order on one rank; all ranks in step; the ladder to the limit
    ranks, guard  torch.distributed; signals, time, a launcher that has gone
    found, receipts, dry   figures and findings, the receipt's file, what would be allocated

torch is imported inside functions of this package only. On ``cpu`` the same code runs on host memory: a
rehearsal, which proves layout and arithmetic and never the capacity of a GPU.
"""
