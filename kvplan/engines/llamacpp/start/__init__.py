"""What llama.cpp makes of a model and its options: classes, element types of the cache."""
