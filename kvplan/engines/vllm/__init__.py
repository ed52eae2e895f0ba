"""vLLM. A question enters by one of four doors; everything else lies in eight rooms.

Doors
    engine          blocks, groups and pages of a request; the pool that a number of bytes makes
    budget          what of a GPU is left for that pool, on every pipeline stage
    capacity_model  both as arithmetic, for the planner's search over GPUs and batch sizes
    tensors         the allocation and the strided views, for the validator

Rooms, each of which reads only those above it (and `compiled`, all of a start-up, between the last two)
    encoder_profile  the largest image, video or sound of a class, and the memory of encoding it
    start            arguments resolved as ``vllm serve`` does; ``versions`` holds the rules of each release
    words            command line, log lines, metrics, names of flags
    backends         the attention backend of a layer and its block sizes; expert kernels
    cache_layout     ``built_model`` -> ``layers`` -> ``specs`` -> ``grouping`` -> ``plan``
    refusals         starts that end with an error
    concurrency      what running requests hold of the blocks
    memory           lines of the budget: weights, activation peak, CUDA graphs, workspaces, host memory

A release is rows in ``start/versions.py``; a model class is one row of ``data/classes.json``
(columns: ``classes``).
"""
