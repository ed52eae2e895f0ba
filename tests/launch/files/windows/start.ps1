$Model = "unsloth/Qwen3-32B-GGUF:Q4_K_M"
$Flags = @("-c", "16384", "-ngl", "99")
$env:CUDA_VISIBLE_DEVICES = "0,1"
& .\llama-server.exe -hf $Model @Flags
