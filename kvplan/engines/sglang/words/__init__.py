"""SGLang's interface: arguments, flags, log lines, metrics, /server_info."""
