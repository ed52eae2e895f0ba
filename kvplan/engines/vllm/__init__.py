"""vLLM. Other packages call ``engine``, ``budget``, ``capacity_model``, ``tensors``. A folder imports
only those above it:

    encoder_profile  the largest image, video or sound of a class
    start            arguments resolved as ``vllm serve`` does
    words            command line, log lines, metrics
    backends         attention backends, expert kernels
    cache_layout     ``built_model`` -> ``layers`` -> ``specs`` -> ``grouping`` -> ``plan``
    refusals         starts that end with an error
    concurrency      blocks that running requests hold
    memory           lines of the budget
"""
