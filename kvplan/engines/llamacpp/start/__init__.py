"""A model and its options under llama.cpp: classes, element types of the cache."""
