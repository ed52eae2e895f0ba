param(
  [string]$Model = "unsloth/Qwen3-32B-GGUF:Q4_K_M",
  [int]$Ctx = 16384
)
& .\llama-server.exe `
  -hf $Model `
  -c $Ctx -ngl 99
