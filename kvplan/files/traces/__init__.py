"""Workload traces, one request a line, whoever wrote them: lengths for a plan, arrivals for a simulation."""
