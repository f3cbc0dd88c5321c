"""What a developer runs: `tools/demo`, `tools/test`, `tools/check`, and the code behind them."""
