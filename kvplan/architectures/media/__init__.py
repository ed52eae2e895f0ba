"""How many tokens images, a video and audio take in a request's prompt, by each model's own processor.

Which rule and which constants is data (`rule`, one row a lineage); the arithmetic of the processors stands in
`sizes`. Keys come from the config; what a processor's own file would say beside it (pixel limits, tiles) is
the published checkpoint's, as the row notes it. A model without such parts, or whose rule is not known, is
refused.
"""
