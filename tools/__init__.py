"""A developer's commands: `tools/demo`, `tools/test`, `tools/check`, and the code behind them."""
