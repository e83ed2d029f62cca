"""Identity: certificates, and who is admitted to a run."""
