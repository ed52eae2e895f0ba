"""The text below the options in the help of the commands with shared options."""

from __future__ import annotations

SIZE = """\
\b
Examples:
  kvplan size llama-3.1-8b                      one request of full length
  kvplan size llama-3.1-8b -t 4k,32k -n 1,8,32  a grid
  kvplan size qwen3-32b --kv-cache-memory 60GiB --ladder
  kvplan size qwen3-32b --gpu h200 --tp 2 --kv-cache-dtype fp8
  kvplan size deepseek-v3 --show formats
  kvplan size gpt-oss-20b gemma-3-27b qwen3-32b --tokens 128k
  kvplan size ./config.json --engine all
  kvplan size hf:Qwen/Qwen3-8B --json
  kvplan size plan.yaml --tokens 8k,32k         a plan as it is deployed
  cat config.json | kvplan size - --tokens 4096

\b
MODEL is a name (kvplan list models), a config.json, a directory that has
one, a card or GGUF file, hf:ORG/NAME, or - for a config on stdin. A plan
file is sized as it stands, at other lengths and numbers where they are given.

\b
Every option can also come from KVPLAN_<LONG_NAME> (KVPLAN_ENGINE=vllm@0.32)
or from ~/.config/kvplan/config.yaml (engine: vllm@0.32); flags count first.
"""
EXPLAIN = """\
\b
Examples:
  kvplan explain llama-3.1-8b
  kvplan explain deepseek-v3 --tokens 32k --tp 8
  kvplan explain ./config.json --engine transformers --json
  kvplan explain plan.yaml
"""
COMPARE = """\
\b
Examples:
  kvplan compare server.log                 model and settings from the log
  kvplan compare llama-3.1-8b server.log --tolerance 1%
  docker logs vllm 2>&1 | kvplan compare -  the log on standard input
  kvplan compare plan.yaml server.log       model and settings from the plan
  kvplan compare ./config.json http://localhost:8000
  kvplan compare http://localhost:8000 --watch 5

\b
Settings that the log or server names are used; options given here count
before them. Exit code 1: a figure is off by more than --tolerance.
"""
CHECK = """\
\b
Examples:
  kvplan check plans/                       every plan of a folder
  kvplan check plans/ --env all             each environment of each plan
  kvplan check plan.yaml --format json
  kvplan check plans/ --baseline origin/main --changed-only
  kvplan check plans/ --format junit --output report.xml
  kvplan check deployment.yaml --gpu 2xh100 --require requests=60,tokens=8k
  kubectl get deploy -o yaml | kvplan check - --gpu h100
  kvplan check chart --helm --values prod.yaml --gpu h100
  kvplan check start.sh --gpu h100 --set MODEL=Qwen/Qwen3-8B

\b
Exit code 1: a plan fails, or its engine would refuse to start; 2: a plan
cannot be read, or asks for what kvplan does not know.
"""
MCP = """\
\b
Examples:
  kvplan mcp                        on standard input and output (extra mcp)
  claude mcp add kvplan -- kvplan mcp

\b
The same for a client that is configured by a file:
  {"mcpServers": {"kvplan": {"command": "kvplan", "args": ["mcp"]}}}
"""
DOCTOR = """\
\b
Examples:
  kvplan doctor                     for a bug report
  kvplan doctor --json
"""
MODELS = """\
\b
Examples:
  kvplan list models                     all of them
  kvplan list models qwen                whose name has `qwen`
  kvplan list models --family mla        that keep latents
  kvplan list models llama-3.1-8b        one: its layers and its source
  kvplan list models --search 'qwen3 8b' on the Hugging Face hub
"""
GPUS = """\
\b
Examples:
  kvplan list gpus                       all of them
  kvplan list gpus amd                   whose name, maker or design has `amd`
  kvplan list gpus h100                  one: every figure with its source
"""
RECEIPTS = """\
\b
Examples:
  kvplan list receipts                        those under evidence/ here
  kvplan list receipts plans/evidence a.json  folders and files
"""
SCHEMA = """\
\b
Examples:
  kvplan schema                     what `kvplan size --json` prints
  kvplan schema compare             what `kvplan compare --json` prints
  kvplan schema simulate            what `kvplan simulate --json` prints
  kvplan schema card                a model card
  kvplan schema gpu                 a GPU file
  kvplan schema plan                a plan file
  kvplan schema fleet               a fleet file
  kvplan schema receipt             a receipt of a validation
"""
