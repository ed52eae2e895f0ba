"""The options of ``kvplan cards`` and ``list models``, and what stands below them."""

from __future__ import annotations

from kvplan.cli.options import OUTPUT, Option, switch, word

NEW = (
    Option("output", ("--output", "-o"), "FILE", word, "Write to a file that does not exist yet.", OUTPUT),
    Option("count", ("--count",), "", switch,
           "Count the tensors by building the model's class without memory (extras hf and gpu).", OUTPUT),
)  # fmt: skip
FAMILY = Option(
    "family", ("--family",), "FAMILY", word, "Only models with such layers.", OUTPUT, complete="families"
)
LISTED = (
    FAMILY,
    Option("search", ("--search",), "WORDS", word,
           "Ask the Hugging Face hub for models with these words, the most downloaded first.", OUTPUT),
)  # fmt: skip
UPDATE = (
    Option("key", ("--key",), "FILE", word,
           "The public key of whoever made it (needs the extra update).", OUTPUT),
    Option("sha256", ("--sha256",), "DIGEST", word,
           "The published digest of its data, instead of a signature.", OUTPUT),
)  # fmt: skip
NEW_EPILOG = """\
\b
Examples:
  kvplan cards new ./config.json --output model_cards/my-model.yaml
  kvplan cards new hf:Qwen/Qwen3-8B
  kvplan cards new ./config.json --count --output my-model.yaml
  cat config.json | kvplan cards new -
"""
LINT = """\
\b
Examples:
  kvplan cards lint                 every card that came with kvplan
  kvplan cards lint my-model.yaml
"""
UPDATE_EPILOG = """\
\b
Examples:
  kvplan cards update kvplan-cards.bin --key release.pem
  kvplan cards update https://example.org/kvplan-cards.bin --sha256 4f1c…
"""
LIST = """\
\b
Examples:
  kvplan cards list                 every card, and where it came from
  kvplan cards list qwen
"""
ADD_EVIDENCE = """\
\b
Examples:
  kvplan cards add-evidence my-model.yaml evidence/my-plan.json
"""
