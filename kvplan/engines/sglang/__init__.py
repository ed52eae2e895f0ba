"""SGLang. Other packages call ``engine`` (a pool of tokens, one more for windows, slots for states; what a
request takes of them), ``budget`` (memory left for the pools) and ``tensors``. A folder imports only those
above it:

    start            arguments resolved
    cache_layout     ``cells`` (bytes of a token on a rank) -> ``stages`` -> ``pools``
    memory           adapters, ranks that share weights, prompt graphs
    words            command line, log lines, metrics, ``/server_info``

``versions`` has the rules of each release, ``scheduling`` the scheduler's settings for a simulation.
"""
