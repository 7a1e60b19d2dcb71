"""The host of one stream: `Calibrator`, its receipts (`Forecast`) and its snapshots."""
