"""llama.cpp. Other packages call ``engine`` (the whole cache, allocated at start; a request holds its slot),
``budget`` (memory left after weights and compute buffer) and ``tensors``. A folder imports only those above
it:

    gguf_file        the tensors of a GGUF file and their types
    start            model classes, element types of the cache
    cache_layout     ``caches`` (tensors) -> ``pool`` (contexts that memory holds)
    memory           the compute buffer
    words            command line, log lines, metrics
    programs         Ollama and LM Studio
"""
