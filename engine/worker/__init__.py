"""One device's worker: a thread that generates and trains, its ledger, its inbox and outbox. Knows nothing of Ray."""
