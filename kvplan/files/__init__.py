"""Turn the outside world into Model, Gpu and Plan values: configs, cards, specs, headers, logs."""
