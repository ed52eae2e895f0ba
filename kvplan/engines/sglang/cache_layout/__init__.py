"""Layers, cells, pools and stages: SGLang's cache as its model runner lays it out."""
