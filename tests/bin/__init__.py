"""The launchers in bin/, and the set-up behind them."""
