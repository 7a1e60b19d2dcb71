"""Every method over every chunk, as production would have played it; what happened is counted, not kept."""
