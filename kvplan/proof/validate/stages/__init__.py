"""The stages of a real server, each measured against its line of the budget.

ballast       (pure) the weights of one rank as tensors; held on the device while the rest is measured
widths        (pure) the widths and the load of the probe of activations, whole or scaled to a rehearsal
activations   the forward pass, the experts' workspace and the sampler of that probe
graphs        CUDA graphs of the probe's forward pass (GPUs only)
pool          the cache's tensors beside all of it
bandwidth     copies on the device, blocks gathered and written, host to device and back
"""
