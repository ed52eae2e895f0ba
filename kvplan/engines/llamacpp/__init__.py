"""llama.cpp. A question enters by one of three doors; everything else lies in six rooms.

Doors
    engine           the whole cache, allocated at start; a request holds its slot
    budget           what of each device is left after weights and compute buffer
    tensors          the tensors of the caches, for the validator

Rooms, each of which reads only those above it
    gguf_file        the tensors of a GGUF file and their types
    start            model classes, element types of the cache
    cache_layout     ``caches`` (tensors of K, V and states) -> ``pool`` (contexts that memory holds)
    memory           the compute buffer
    words            command line, log lines, metrics
    programs         Ollama and LM Studio, which choose llama.cpp's options

Beside them: ``context`` (the context that nobody gave), ``host`` (host memory).
"""
