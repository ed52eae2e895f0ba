"""Reading one config: its text part, its class's defaults, its role, its facts."""
