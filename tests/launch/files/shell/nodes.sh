# on each node: ./nodes.sh RANK
ssh node0 "vllm serve deepseek-ai/DeepSeek-V3 -tp 8 -pp 2 --nnodes 2 --node-rank 0 --master-addr node0"
ssh node1 "vllm serve deepseek-ai/DeepSeek-V3 -tp 8 -pp 2 --nnodes 2 --node-rank 1 --master-addr node0 --headless"
