"""A wing: proof of what kvplan says, on a device. The core imports nothing of it.

    validate/   the predicted cache allocated, used and measured; an installed engine asked (--with)
    numerics/   K and V stored and read back as each format does, and attention over them
    quality     what a format costs: those errors beside the bytes that it saves

torch is imported inside functions only. ``torchrun … -m kvplan.proof PLAN`` runs ``kvplan validate`` so.
"""
