@echo off
rem start
set "CTX=16384"
set MODEL=C:\models\Qwen3-32B-Q4_K_M.gguf
C:\llama\llama-server.exe ^
  -m "%MODEL%" -c %CTX% -ngl 99
