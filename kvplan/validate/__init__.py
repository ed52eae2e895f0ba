"""Proof on the target: a real paged cache is allocated, filled through block tables, read back and compared.

    layouts/      the tensors of one rank, exactly as each engine allocates and views them (pure)
    blocks, free  block tables and free queues: reference counts, prefix hits, copy-on-write, windows (pure)
    slots         slot mappings: where a request's tokens lie
    pattern       what is written: bits that follow from content, position, layer, head and component
    memory        the tensors, on any torch device; released on exit
    fill          write and check through slot mappings, in bounded chunks
    kinds, attention   attention over the paged cache beside the same values in a row
    checks        what must hold of tables at any time; fragmentation
    exercise, findings  all of it for one rank, with progress and a cooperative stop, and what it found

torch is imported inside functions of this package only. On ``cpu`` the same code runs on host memory: a
rehearsal, which proves layout and arithmetic and never the capacity of a GPU.
"""
