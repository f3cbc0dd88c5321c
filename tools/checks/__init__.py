"""House rules that no linter knows: one file each, whose `rule` returns findings; each has a test that it can fail."""
