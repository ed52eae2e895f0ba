"""Arguments of ``vllm serve``, resolved: defaults, element types, classes, drafts, the rules of a release."""
