"""How many bytes of weights each GPU holds: tensors, formats, the division among ranks, checkpoints.

Pure: whole numbers in, whole numbers out. ``inventory`` lists a model's tensors, ``ranks`` divides them,
``formats`` and ``quantisation`` say how they are stored, ``stored`` and ``by_name`` start from a
checkpoint's headers, ``facts`` picks the best source.
"""
