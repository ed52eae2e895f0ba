"""SGLang's arguments, resolved: memory defaults, devices, element types, backends, the rules of a release."""
