"""Many classes: `MultiCalibrator`, its receipts (`MultiForecast`) and its snapshots."""
