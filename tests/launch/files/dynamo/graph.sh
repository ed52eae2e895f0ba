#!/bin/bash
cat > small.yaml <<CONFIG
VllmWorker:
  model: Qwen/Qwen3-0.6B
  max-model-len: 4096
  ServiceArgs: {workers: 1, resources: {gpu: 1}}
CONFIG
dynamo serve graphs.agg:Frontend -f small.yaml
