"""Text Generation Inference 3 (huggingface/text-generation-inference): read from its source, not asked."""
