"""SGLang. A question enters by one of three doors; everything else lies in four rooms.

Doors
    engine           a pool of tokens, one more for windows, slots for states; what a request takes of them
    budget           what of a GPU is left for the pools
    tensors          the allocation, for the validator

Rooms, each of which reads only those above it
    start            arguments resolved
    cache_layout     ``cells`` (bytes of a token on a rank) -> ``stages`` -> ``pools``
    memory           adapters, ranks that share weights, prompt graphs
    words            command line, log lines, metrics, ``/server_info``

Beside them: ``versions`` (rules of each release), ``refusals`` (starts that end with an error),
``answer_settings`` (settings and warnings of an answer), ``scheduling`` (the scheduler's settings, for a
simulation).
"""
