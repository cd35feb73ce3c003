"""Measurements that print ratios within one run: `llmlab bench`."""
