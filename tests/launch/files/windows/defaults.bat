@echo off
if not defined MODEL set MODEL=unsloth/Qwen3-8B-GGUF:Q4_K_M
if "%CTX%"=="" set CTX=8192
if exist x (
  echo found
) else (
  echo none
)
cd /d %~dp0
llama-server.exe -hf %MODEL% -c %CTX%
pause
