"""Profiles of the built-in models as JSON; written by `python -m airsplit.models.shipping`, recounted by the tests."""
