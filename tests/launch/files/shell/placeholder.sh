#!/bin/bash
vllm serve <your model here> --tensor-parallel-size 2
