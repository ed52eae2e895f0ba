"""The memory of a server that kvplan makes itself: weights, and the pool beside them.

ballast       (pure) the weights of one rank as tensors; held on the device while the rest is measured
pool          the cache's tensors beside them
"""
