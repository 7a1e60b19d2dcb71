"""The service: scores in, outcomes whenever they come, nothing lost. docs/service.md and docs/service-store.md."""
