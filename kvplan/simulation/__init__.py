"""A deployment on a workload: runs of `kvplan.simulate` under the pools and step times that may be, and what
they say together. Values in, values out: traces are read by `kvplan.files.traces`."""
