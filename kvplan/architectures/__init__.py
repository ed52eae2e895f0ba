"""A config becomes a Model: pure, a dict in and values out. Doors (files, hub, YAML) are elsewhere."""
