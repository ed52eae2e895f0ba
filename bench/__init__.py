"""Ratios against named baselines, measured in one run: ``python -m bench`` (or ``make bench``)."""
