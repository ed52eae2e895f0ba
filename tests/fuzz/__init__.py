"""A fuzzer of kvplan's own: whatever comes in, an answer or a KvplanError comes out, in time and in bounds.

``make fuzz`` runs 100,000 inputs, ``make test`` a sample. Every input follows from a seed and a number:
``python -m tests.fuzz --again configs:20261122:417`` runs one again and shows the traceback.
"""
